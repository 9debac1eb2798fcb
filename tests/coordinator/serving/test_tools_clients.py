"""Tools and structured output through the official clients, against a real server.

The embedded model was not trained on tools: where a call must come, the grammar makes it, whatever the model prefers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import ollama
import openai
import pydantic
import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess

pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")

QUESTION = [{"role": "user", "content": "Paint the wall, please."}]
COLOURS = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "coats": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["colour", "coats"],
    "additionalProperties": False,
}
PAINT: Any = {"type": "function", "function": {"name": "paint", "description": "Paints.", "parameters": COLOURS}}
WAIT: Any = {
    "type": "function",
    "function": {
        "name": "wait",
        "parameters": {
            "type": "object",
            "properties": {"days": {"enum": [1, 2]}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}


class Animal(pydantic.BaseModel):
    kind: Literal["cat", "dog"]
    legs: Literal[2, 4]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def check_paint(name: str | None, arguments: str) -> None:
    assert name == "paint"
    value = json.loads(arguments)
    assert value["colour"] in ("red", "blue") and 1 <= value["coats"] <= 3


def test_a_named_tool_is_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,  # type: ignore[arg-type]
        tools=[WAIT, PAINT],
        tool_choice={"type": "function", "function": {"name": "paint"}},
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function" and call.id
    check_paint(call.function.name, call.function.arguments)


def test_a_call_is_streamed_as_argument_deltas(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,  # type: ignore[arg-type]
        tools=[PAINT],
        tool_choice="required",
        parallel_tool_calls=False,
        stream=True,
    )
    deltas = [
        call
        for chunk in stream
        for choice in chunk.choices
        for call in choice.delta.tool_calls or ()
        if call.function is not None
    ]
    assert deltas[0].id and deltas[0].index == 0
    texts = [delta.function.arguments or "" for delta in deltas if delta.function]
    assert sum(bool(text) for text in texts) > 2, "arguments come piece by piece"
    check_paint(deltas[0].function.name if deltas[0].function else None, "".join(texts))


def test_a_result_goes_back_in_and_the_model_answers(client: openai.OpenAI) -> None:
    call: Any = {"id": "call_1", "type": "function", "function": {"name": "paint", "arguments": '{"colour": "red"}'}}
    messages: Any = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "The wall is red now."},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[PAINT], max_tokens=20)
    without = client.chat.completions.create(model=MODEL, messages=messages[:1], tools=[PAINT], max_tokens=20)
    assert answer.choices[0].message.content
    assert answer.usage and without.usage and answer.usage.prompt_tokens > without.usage.prompt_tokens + 20


def test_tools_that_may_not_be_called_are_not_shown(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=8)  # type: ignore[arg-type]
    none = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,  # type: ignore[arg-type]
        max_tokens=8,
        tools=[PAINT],
        tool_choice="none",
    )
    assert plain.usage and none.usage and plain.usage.prompt_tokens == none.usage.prompt_tokens
    assert plain.choices[0].message.content == none.choices[0].message.content


def test_an_answer_in_a_schema(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Animal)  # type: ignore[arg-type]
    animal = parsed.choices[0].message.parsed
    assert animal is not None and animal.kind in ("cat", "dog")
    assert parsed.choices[0].finish_reason == "stop"


def test_json_mode_makes_an_object(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": 'Answer with {"ok": true} and nothing else.'}],
        response_format={"type": "json_object"},
        max_tokens=60,
    )
    text = answer.choices[0].message.content or ""
    assert text.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_a_schema_that_cannot_be_is_refused_before_anything_runs(client: openai.OpenAI, server: ServerProcess) -> None:
    before = server.telemetry()["tokens_run"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,  # type: ignore[arg-type]
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "foo"}}},
        )
    assert "schema" in str(caught.value)
    assert server.telemetry()["tokens_run"] == before


def test_responses_call_and_form(client: openai.OpenAI) -> None:
    called = client.responses.create(
        model=MODEL,
        input="Paint the wall.",
        tools=[{"type": "function", "strict": True, **PAINT["function"]}],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    check_paint(call.name, call.arguments)
    formed = client.responses.parse(model=MODEL, input="Name an animal.", text_format=Animal)
    assert formed.output_parsed is not None and formed.output_parsed.legs in (2, 4)


def test_anthropic_calls_a_tool_streamed_and_whole(server: ServerProcess) -> None:
    tool: Any = {"name": "paint", "description": "Paints.", "input_schema": COLOURS}
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        asked: Any = {"model": MODEL, "max_tokens": 100, "messages": QUESTION, "tools": [tool]}
        message = client.messages.create(**asked, tool_choice={"type": "tool", "name": "paint"})
        (block,) = [part for part in message.content if part.type == "tool_use"]
        assert message.stop_reason == "tool_use"
        check_paint(block.name, json.dumps(block.input))
        with client.messages.stream(**asked, tool_choice={"type": "any"}) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        assert "input_json" in kinds
        (same,) = [part for part in final.content if part.type == "tool_use"][:1]
        check_paint(same.name, json.dumps(same.input))


def test_ollama_answers_in_a_schema(server: ServerProcess) -> None:
    with ollama.Client(host=server.url) as client:
        answer = client.chat(model=MODEL, messages=QUESTION, format=Animal.model_json_schema())
    assert Animal.model_validate_json(answer.message.content or "").legs in (2, 4)
