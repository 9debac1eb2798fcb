"""What OpenAI's responses take as input, as the messages of a chat. Refuses to know how answers are worded."""

from __future__ import annotations

from typing import Any

from ..errors import BadRequest
from ..fields import wrong
from ..request import Message
from .openai_parts import read_arguments, read_content, read_messages, tool_call


def read_input(value: Any, instructions: str | None) -> tuple[Message, ...]:
    """A text, or a list of items: messages, calls, their results, thinking. Raises BadRequest with the place."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(value, str):
        return (*messages, {"role": "user", "content": value})
    if not isinstance(value, list) or not value:
        raise wrong("input", value, "a text or a list of items")
    for i, item in enumerate(value):
        _add(messages, item, f"input[{i}]")
    return tuple(messages)


def _add(messages: list[dict[str, Any]], item: Any, place: str) -> None:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    match kind:
        case "message":
            (message,) = read_messages([{"role": item.get("role"), "content": item.get("content")}])
            if message["role"] == "tool":
                raise wrong(f"{place}.role", "tool", "an item of type function_call_output")
            _join(messages, dict(message))
        case "function_call":
            if not isinstance(item.get("name"), str):
                raise wrong(f"{place}.name", item.get("name"), "the function's name")
            arguments = read_arguments(item.get("arguments"), f"{place}.arguments")
            call = tool_call(str(item.get("call_id") or ""), item["name"], arguments)
            _join(messages, {"role": "assistant", "content": "", "tool_calls": [call]})
        case "function_call_output":
            if not isinstance(item.get("call_id"), str):
                raise wrong(f"{place}.call_id", item.get("call_id"), "the id of the call it answers")
            output = read_content(item.get("output"), f"{place}.output")
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})
        case "reasoning":
            _join(messages, {"role": "assistant", "content": "", "reasoning_content": _thinking(item, place)})
        case _:
            raise wrong(f"{place}.type", kind, "message, function_call, function_call_output or reasoning")


def _join(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    # One turn of the assistant comes as several items: thinking, text, calls.
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or message["role"] != "assistant":
        messages.append(message)
        return
    last["content"] += message["content"]
    if "reasoning_content" in message:
        last["reasoning_content"] = last.get("reasoning_content", "") + message["reasoning_content"]
    if "tool_calls" in message:
        last["tool_calls"] = [*last.get("tool_calls", []), *message["tool_calls"]]


def _thinking(item: dict[str, Any], place: str) -> str:
    if item.get("encrypted_content"):
        raise BadRequest("encrypted thinking cannot be read", "send its content", param=f"{place}.encrypted_content")
    parts = item.get("content") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise wrong(f"{place}.content", parts, "a list of parts")
    return "".join(text for part in parts if isinstance(text := part.get("text"), str))
