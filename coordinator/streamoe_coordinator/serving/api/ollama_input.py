"""Ollama's messages, as the messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import NotBuiltIn
from ..fields import wrong
from ..request import Message
from .openai_parts import read_arguments, tool_call


def read_messages(listed: Sequence[Any]) -> tuple[Message, ...]:
    """Raises BadRequest with the place."""
    return tuple(_message(entry, f"messages[{i}]") for i, entry in enumerate(listed))


def _message(entry: Any, place: str) -> Message:
    role = entry.get("role") if isinstance(entry, dict) else None
    if role not in ("system", "user", "assistant", "tool"):
        raise wrong(f"{place}.role", role, "system, user, assistant or tool")
    content = entry.get("content")
    if not isinstance(content, str) and not (content is None and role == "assistant"):
        raise wrong(f"{place}.content", content, "a text")
    if entry.get("images"):
        raise NotBuiltIn("this model has no image encoder", "send text alone", param=f"{place}.images")
    message: dict[str, Any] = {"role": role, "content": content or ""}
    if role == "assistant" and isinstance(entry.get("thinking"), str) and entry["thinking"]:
        message["reasoning_content"] = entry["thinking"]
    if role == "assistant" and entry.get("tool_calls"):
        message["tool_calls"] = _calls(entry["tool_calls"], f"{place}.tool_calls")
    if role == "tool":
        message["name"] = str(entry.get("tool_name") or entry.get("name") or "")
        message["tool_call_id"] = str(entry.get("tool_call_id") or "")
    return message


def _calls(listed: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(listed, list):
        raise wrong(place, listed, "a list")
    calls = []
    for i, call in enumerate(listed):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(f"{place}[{i}]", call, "a function call with a name")
        arguments = read_arguments(function.get("arguments") or {}, f"{place}[{i}].function.arguments")
        calls.append(tool_call(str(call.get("id") or ""), function["name"], arguments))
    return calls
