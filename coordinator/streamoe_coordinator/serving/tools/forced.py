"""The grammar of an answer that must be a tool call, for tool_choice "required" or a function by name.

Owns the grammar's text (llguidance's Lark). Refuses to know how it is enforced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from streamoe_engine.errors import UsageError

from ..grammar import BOUNDED_SPACE
from ..request import Tool
from .formats import JSON_FORMAT, ToolFormat


def forced_call_grammar(
    tool_format: ToolFormat, tools: Sequence[Tool], literal: Callable[[str], str], *, only_one: bool
) -> str:
    """A Lark grammar whose words are calls of `tools`: one, or one and more.

    literal: how a mark is written in the grammar, which depends on whether it is a token of its own. Raises UsageError
    for a format that has no grammar here.
    """
    if tool_format.name == JSON_FORMAT:
        body = _json_rules(tools)
    elif tool_format.name == "qwen3_coder":
        body = _xml_rules(tools)
    else:
        raise UsageError(
            f"calls cannot be forced on this model: its tool format, {tool_format.name}, has no grammar here",
            'use tool_choice "auto"',
        )
    start, end = literal(tool_format.start), literal(tool_format.end)
    repeat = "call" if only_one else 'call ("\\n" call)*'
    return f'start: {repeat}\ncall: {start} "\\n" body "\\n" {end}\n{body}'


def _json_rules(tools: Sequence[Tool]) -> str:
    schemas = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": _arguments_schema(tool)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    definitions = {key: value for tool in tools for key, value in tool.parameters.get("$defs", {}).items()}
    schema: dict[str, Any] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if definitions:
        schema = {**schema, "$defs": definitions}
    return f"body: {_json(schema)}\n"


def _arguments_schema(tool: Tool) -> dict[str, Any]:
    schema = {key: value for key, value in tool.parameters.items() if key != "$defs"}
    return {"type": "object", **schema}


def _xml_rules(tools: Sequence[Tool]) -> str:
    lines = ["body: " + " | ".join(f"function{at}" for at in range(len(tools)))]
    for at, tool in enumerate(tools):
        required = set(tool.parameters.get("required", ()))
        parts = []
        for number, (name, schema) in enumerate(tool.parameters.get("properties", {}).items()):
            rule = f"parameter{at}_{number}"
            parts.append(rule if name in required else f"{rule}?")
            value, definition = _xml_value(f"value{at}_{number}", schema)
            lines.append(f'{rule}: {_text(f"<parameter={name}>")} "\\n" {value}\n{definition}')
        lines.append(f'function{at}: {_text(f"<function={tool.name}>")} "\\n" {" ".join(parts)} "</function>"')
    return "\n".join(lines) + "\n"


_XML_END = "\n</parameter>\n"


def _xml_value(rule: str, schema: Any) -> tuple[str, str]:
    # The value and its end mark, and the rule that defines it.
    if isinstance(schema, dict) and schema.get("type", "string") != "string":
        return f"{rule} {_text(_XML_END)}", f"{rule}: {_json(schema)}"
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
        return f"{rule} {_text(_XML_END)}", f"{rule}: " + " | ".join(_text(str(word)) for word in schema["enum"])
    return rule, f"{rule}[suffix={_text(_XML_END)}]: /(?s:.*)/"


def _json(schema: dict[str, Any]) -> str:
    return f"%json {json.dumps({**schema, **BOUNDED_SPACE})}"


def _text(text: str) -> str:
    return json.dumps(text)
