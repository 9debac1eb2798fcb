"""Finding tool calls in text that arrives in pieces of any size."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.serving.stream import ContentDelta, OutputDelta, ToolCallArguments, ToolCallBegun
from streamoe_coordinator.serving.tools.formats import ToolFormat, find_format
from streamoe_coordinator.serving.tools.splitter import ToolCallSplitter

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
ARGUMENTS = {"city": 'Köln </tool_call> "x" {', "days": 3}
CALL = json.dumps({"name": "get_weather", "arguments": ARGUMENTS}, ensure_ascii=False)

# Templates reduced to the marks by which a format is known.
TEMPLATES = {
    "json_tools": "tools <tool_call> tool_call.name",
    "qwen3_coder": "tools <tool_call>\n<function=x>\n<parameter=y>",
    "mistral": "tools [TOOL_CALLS]",
    "kimi_k2": "tools <|tool_calls_section_begin|>",
    "glm47": "tools <tool_call> <arg_key>",
    "minimax_m2": "tools <minimax:tool_call>",
}
# Text that a model of each format writes to call get_weather(city="Bonn", days=3).
WRITTEN = {
    "json_tools": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn", "days": 3}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Bonn", "days": 3}',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Bonn", "days": 3}<|tool_call_end|><|tool_calls_section_end|>',
    "glm47": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Bonn</parameter>\n'
    '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
}


def format_named(name: str) -> ToolFormat:
    found = find_format(TEMPLATES[name], lambda _: False)
    assert found.name == name and found.is_native
    return found


def split(tool_format: ToolFormat, pieces: list[str]) -> list[OutputDelta]:
    splitter = ToolCallSplitter(tool_format, [WEATHER])
    deltas = [delta for piece in pieces for delta in splitter.push(piece)]
    return [*deltas, *splitter.finish()]


def joined(deltas: list[OutputDelta]) -> tuple[str, list[tuple[str, str]]]:
    """The content, and each call's name and arguments."""
    content, calls = "", []
    for delta in deltas:
        if isinstance(delta, ContentDelta):
            content += delta.text
        elif isinstance(delta, ToolCallBegun):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, ToolCallArguments):
            name, text = calls[delta.index]
            calls[delta.index] = name, text + delta.text
    return content, calls


def cut(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(at, len(text)) for at in cuts} | {0, len(text)})
    return [text[low:high] for low, high in pairwise(ends)]


@pytest.mark.parametrize("name", sorted(WRITTEN))
@given(cuts=st.lists(st.integers(0, 260), max_size=40))
def test_a_call_is_found_however_its_text_is_cut(name: str, cuts: list[int]) -> None:
    content, calls = joined(split(format_named(name), cut("Let me look.\n\n" + WRITTEN[name], cuts)))
    assert content == "Let me look."
    assert [(called, json.loads(text)) for called, text in calls] == [("get_weather", {"city": "Bonn", "days": 3})]


@given(cuts=st.lists(st.integers(0, 400), max_size=60))
def test_an_end_mark_inside_a_string_of_json_does_not_end_the_call(cuts: list[int]) -> None:
    text = f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"
    content, calls = joined(split(format_named("json_tools"), cut(text, cuts)))
    assert content == ""
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [("get_weather", ARGUMENTS)] * 2


def test_arguments_in_json_are_sent_on_as_they_come() -> None:
    splitter = ToolCallSplitter(format_named("json_tools"), [WEATHER])
    begun = splitter.push('<tool_call>{"name": "get_weather", "arguments": {"ci')
    assert [type(delta) for delta in begun] == [ToolCallBegun, ToolCallArguments]
    assert splitter.push('ty": "Bo') == [ToolCallArguments(0, 'ty": "Bo')]
    assert splitter.is_inside and splitter.num_calls == 1
    assert splitter.push('nn"}}</tool_call>after') == [ToolCallArguments(0, 'nn"}'), ContentDelta("after")]
    assert not splitter.is_inside


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nno json\n</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        "<tool_call>[1, 2]</tool_call>",
        "a < b and <tool",
        "<tool_call>\nunfinished",
        "no mark at all \n",
        " \n",
    ],
)
@given(cuts=st.lists(st.integers(0, 60), max_size=20))
def test_what_is_no_call_is_content_and_nothing_is_dropped(text: str, cuts: list[int]) -> None:
    assert joined(split(format_named("json_tools"), cut(text, cuts))) == (text, [])


@given(
    before=st.text(st.sampled_from("ab <\n"), max_size=8),
    after=st.text(st.sampled_from("ab <\n"), max_size=8),
    cuts=st.lists(st.integers(0, 120), max_size=30),
)
def test_text_around_a_call_stays_but_for_layout(before: str, after: str, cuts: list[int]) -> None:
    content, calls = joined(split(format_named("json_tools"), cut(before + WRITTEN["json_tools"] + after, cuts)))
    assert len(calls) == 1
    assert "".join(content.split()) == "".join((before + after).split())
    assert content.startswith(before.rstrip())


def test_other_orders_of_keys_and_arguments_as_text_are_calls_too() -> None:
    text = json.dumps({"arguments": json.dumps({"city": "Bonn"}), "name": "get_weather"})
    _, calls = joined(split(format_named("json_tools"), [f"<tool_call>{text}</tool_call>"]))
    assert calls == [("get_weather", '{"city": "Bonn"}')]


def test_a_call_cut_short_goes_as_far_as_it_came() -> None:
    _, calls = joined(split(format_named("json_tools"), ['<tool_call>{"name": "f", "arguments": {"a": "lon']))
    assert calls == [("f", '{"a": "lon')]


def test_several_calls_between_one_pair_of_marks() -> None:
    deltas = split(format_named("mistral"), list(WRITTEN["mistral"] + 'get_weather[ARGS]{"city": "Ulm"}'))
    _, calls = joined(deltas)
    assert [name for name, _ in calls] == ["get_weather", "get_weather"]
    assert len({delta.id for delta in deltas if isinstance(delta, ToolCallBegun)}) == 2


def test_a_template_without_tools_gets_json_calls() -> None:
    for template in (None, "{{ messages }} <tool_call>"):
        found = find_format(template, lambda _: True)
        assert found.name == "json_tools" and not found.is_native
