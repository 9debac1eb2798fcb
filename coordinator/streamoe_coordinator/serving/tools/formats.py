"""Which way of writing tool calls a model was trained on.

Owns the choice among mlx-lm's parsers, by what the chat template says and the vocabulary holds. A model whose template
knows no tools is told of them in its system message and asked for JSON calls, the commonest form. Refuses to know how
calls are found in a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamoe_engine.mlx_lm_import import submodule

# In this order: a mark of a later line may also stand in a template of an earlier one. All of a line's texts must
# stand in the template.
_BY_TEMPLATE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("function_gemma", ("<start_function_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("glm47", ("<arg_key>",)),
    ("pythonic", ("<|tool_list_start|>",)),
    ("pythonic", ("<|tool_call_start|>",)),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("minicpm5", ('<function name="', '<param name="')),
    ("mistral", ("[TOOL_CALLS]",)),
    ("muse_spark", ("<atem:function_calls>",)),
    ("json_tools", ("<tool_call>",)),
)
_BY_VOCABULARY = (
    ("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    ("pythonic", ("<|tool_call_start|>", "<|tool_call_end|>")),
)
JSON_FORMAT = "json_tools"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """start, end: the marks around a call; end "" means until the answer ends. parse: the text between them, and the
    tools as functions, to a call or a list of calls ({"name", "arguments", perhaps "id"}); it raises ValueError and
    kin. is_native: the template knows tools by itself.
    """

    name: str
    start: str
    end: str
    parse: Callable[[str, list[dict[str, Any]]], Any]
    is_native: bool

    @property
    def is_json(self) -> bool:
        """Whether a call is {"name": ..., "arguments": {...}}, so that its arguments can be sent on as they come."""
        return self.name == JSON_FORMAT


def find_format(template: str | None, is_token: Callable[[str], bool]) -> ToolFormat:
    """The format of a model with this chat template source. is_token: whether a text is one token of its vocabulary."""
    knows_tools = template is not None and "tools" in template
    if template is not None and knows_tools:
        for name, marks in _BY_TEMPLATE:
            if all(mark in template for mark in marks):
                return _format(name, is_native=True)
    for name, marks in _BY_VOCABULARY:
        if knows_tools and all(map(is_token, marks)):
            return _format(name, is_native=True)
    return _format(JSON_FORMAT, is_native=False)


def _format(name: str, *, is_native: bool) -> ToolFormat:
    module = submodule(f"tool_parsers.{name}")
    return ToolFormat(name, module.tool_call_start, module.tool_call_end, module.parse_tool_call, is_native)
