"""Conversations with tools, as a chat template takes them.

Owns the two forms: for templates that know tools, and for those that do not, where tools, calls and results become
text of the system's, the assistant's and the user's messages. Refuses to know how templates run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..request import Message, Tool

_INSTRUCTION = """You can call these functions, one JSON description a line:
{tools}

To call a function, write its name and arguments as JSON between marks, and nothing after the calls:
<tool_call>
{{"name": "function_name", "arguments": {{"argument": "value"}}}}
</tool_call>"""


def as_function(tool: Tool) -> dict[str, Any]:
    """The form of a tool that chat templates and mlx-lm's parsers expect."""
    parameters = dict(tool.parameters) or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def as_text(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The conversation for a template that knows no tools: every message has a role it knows and a text."""
    rendered: list[dict[str, str]] = []
    was_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and was_result:
            rendered[-1]["content"] += f"\n{_result(message)}"
        elif is_result:
            rendered.append({"role": "user", "content": _result(message)})
        else:
            rendered.append({**_plain(message), "content": _with_calls(message)})
        was_result = is_result
    if tools:
        _tell_of_tools(rendered, tools)
    return list(rendered)


def _plain(message: Message) -> dict[str, str]:
    return {key: value for key, value in message.items() if key != "tool_calls"}


def _result(message: Message) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"


def _with_calls(message: Message) -> str:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    texts = [json.dumps(_name_and_arguments(call), ensure_ascii=False) for call in calls]
    return "\n".join(part for part in (message["content"], *(f"<tool_call>\n{t}\n</tool_call>" for t in texts)) if part)


def _name_and_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}


def _tell_of_tools(rendered: list[dict[str, str]], tools: Sequence[Tool]) -> None:
    lines = "\n".join(json.dumps(as_function(tool)["function"], ensure_ascii=False) for tool in tools)
    text = _INSTRUCTION.format(tools=lines)
    if rendered and rendered[0]["role"] == "system":
        rendered[0]["content"] += f"\n\n{text}"
    else:
        rendered.insert(0, {"role": "system", "content": text})
