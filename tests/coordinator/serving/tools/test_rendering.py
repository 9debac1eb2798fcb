"""Conversations with tools for templates that know none."""

from __future__ import annotations

import json

from streamoe_coordinator.serving.request import Tool
from streamoe_coordinator.serving.tools.rendering import as_text

TOOL = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}


def test_tools_join_the_system_message_or_make_one() -> None:
    (system, user) = as_text([{"role": "user", "content": "hi"}], [TOOL])
    assert system["role"] == "system" and user == {"role": "user", "content": "hi"}
    described = next(line for line in system["content"].splitlines() if '"name": "add"' in line)
    assert json.loads(described)["parameters"] == TOOL.parameters
    merged = as_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], [TOOL])
    assert merged[0]["content"].startswith("Be brief.\n\n") and len(merged) == 2


def test_calls_and_results_become_text_in_order() -> None:
    messages = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
        {"role": "tool", "content": "3", "tool_call_id": "c2", "name": "add"},
        {"role": "user", "content": "thanks"},
    ]
    rendered = as_text(messages, [])
    assert [message["role"] for message in rendered] == ["user", "assistant", "user", "user"]
    assert rendered[1]["content"].count('{"name": "add", "arguments": {"a": 1}}') == 2
    assert rendered[2]["content"] == "<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response>"
    assert all(set(message) == {"role", "content"} for message in rendered)


def test_without_tools_nothing_changes() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert as_text(messages, []) == messages
