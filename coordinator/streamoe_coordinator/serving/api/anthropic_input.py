"""Anthropic's messages, as the messages of a chat. Refuses to know how answers are worded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BadRequest
from ..fields import wrong
from ..images import refuse_image
from ..request import Message, Tool, ToolChoice
from .openai_parts import tool_call


def read_conversation(system: Any, listed: Sequence[Any]) -> tuple[Message, ...]:
    """System text and turns. Raises BadRequest with the place."""
    messages: list[Message] = []
    if system:
        messages.append({"role": "system", "content": _texts(system, "system")})
    for i, entry in enumerate(listed):
        place = f"messages[{i}]"
        role = entry.get("role") if isinstance(entry, dict) else None
        if role not in ("user", "assistant"):
            raise wrong(f"{place}.role", role, "user or assistant")
        blocks = _blocks(entry.get("content"), f"{place}.content")
        messages += _user(blocks, place) if role == "user" else [_assistant(blocks, place)]
    if messages[-1]["role"] == "assistant":
        raise BadRequest(
            "the last message is the assistant's: an answer cannot be begun for it",
            "end with a user's message",
            param=f"messages[{len(listed) - 1}]",
        )
    return tuple(messages)


def read_tools(listed: Sequence[Any]) -> tuple[Tool, ...]:
    """Tools that the client runs. Raises BadRequest for those of Anthropic's servers."""
    tools = []
    for i, entry in enumerate(listed):
        place = f"tools[{i}]"
        if not isinstance(entry, dict) or entry.get("type") not in (None, "custom"):
            raise wrong(f"{place}.type", entry.get("type") if isinstance(entry, dict) else entry, '"custom"')
        name, schema, description = entry.get("name"), entry.get("input_schema"), entry.get("description") or ""
        if not isinstance(name, str) or not name or not isinstance(description, str):
            raise wrong(f"{place}.name", name, "a name and a description")
        if not isinstance(schema, dict):
            raise wrong(f"{place}.input_schema", schema, "a JSON schema")
        tools.append(Tool(name, description, schema, entry.get("strict") is True))
    return tuple(tools)


def read_tool_choice(value: Any) -> tuple[ToolChoice, bool]:
    """The choice, and whether several calls may come. Raises BadRequest."""
    if value is None:
        return ToolChoice(), True
    kind = value.get("type") if isinstance(value, dict) else None
    may_call_several = isinstance(value, dict) and value.get("disable_parallel_tool_use") is not True
    if kind in ("auto", "none"):
        return ToolChoice(kind), may_call_several
    if kind == "any":
        return ToolChoice("required"), may_call_several
    if kind == "tool" and isinstance(value.get("name"), str):
        return ToolChoice("named", value["name"]), may_call_several
    raise wrong("tool_choice", value, "one of type auto, any, none, or tool with a name")


def _blocks(content: Any, place: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise wrong(place, content, "a text or a list of blocks")
    return content


def _user(blocks: list[dict[str, Any]], place: str) -> list[Message]:
    # Results of tools come first, each a message of its own; then what the user says.
    results: list[Message] = []
    texts = []
    for i, block in enumerate(blocks):
        at = f"{place}.content[{i}]"
        if block.get("type") != "tool_result":
            texts.append(_text(block, at))
            continue
        if not isinstance(block.get("tool_use_id"), str):
            raise wrong(f"{at}.tool_use_id", block.get("tool_use_id"), "the id of the call it answers")
        content = _texts(block.get("content") or "", f"{at}.content")
        results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content})
    return [*results, {"role": "user", "content": "".join(texts)}] if texts or not results else results


def _assistant(blocks: list[dict[str, Any]], place: str) -> Message:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for i, block in enumerate(blocks):
        at = f"{place}.content[{i}]"
        match block.get("type"):
            case "thinking":
                if not isinstance(block.get("thinking"), str):
                    raise wrong(f"{at}.thinking", block.get("thinking"), "a text")
                message["reasoning_content"] = message.get("reasoning_content", "") + block["thinking"]
            case "tool_use":
                if not isinstance(block.get("name"), str) or not isinstance(block.get("input"), dict):
                    raise wrong(at, block, "a name and an input object")
                call = tool_call(str(block.get("id") or ""), block["name"], block["input"])
                message.setdefault("tool_calls", []).append(call)
            case _:
                message["content"] += _text(block, at)
    return message


def _texts(content: Any, place: str) -> str:
    return "".join(_text(block, f"{place}[{i}]") for i, block in enumerate(_blocks(content, place)))


def _text(block: dict[str, Any], place: str) -> str:
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind == "image":
        source = block.get("source")
        source = source if isinstance(source, dict) else {}
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        raise refuse_image(url if source.get("type") == "base64" else str(source.get("url") or ""), place)
    raise wrong(f"{place}.type", kind, "a block of type text")
