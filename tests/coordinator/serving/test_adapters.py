"""Each API's words for one answer with thinking, text and two tool calls; and reading them back in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamoe_coordinator.events import Timings
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.serving.answering import Collected
from streamoe_coordinator.serving.api import StreamWriter
from streamoe_coordinator.serving.api.anthropic_input import read_conversation
from streamoe_coordinator.serving.api.anthropic_messages import MessageReply
from streamoe_coordinator.serving.api.ollama import OllamaReply
from streamoe_coordinator.serving.api.ollama_input import read_messages as read_ollama
from streamoe_coordinator.serving.api.openai_chat import ChatReply
from streamoe_coordinator.serving.api.openai_parts import read_messages
from streamoe_coordinator.serving.api.openai_responses import ResponseReply
from streamoe_coordinator.serving.api.responses_input import read_input
from streamoe_coordinator.serving.errors import BadRequest, Draining
from streamoe_coordinator.serving.ports import ThinkingParser
from streamoe_coordinator.serving.request import AnswerRequest, Prompt
from streamoe_coordinator.serving.stream import (
    ContentDelta,
    Ended,
    OutputDelta,
    ReasoningDelta,
    Tokens,
    ToolCallArguments,
    ToolCallBegun,
)
from streamoe_engine.telemetry import Snapshot

REQUEST = AnswerRequest("r1", Prompt((1, 2, 3)), SamplingParams(), ThinkingParser)
DELTAS: list[OutputDelta] = [
    ReasoningDelta("hm, "),
    ReasoningDelta("so"),
    ContentDelta("I look. "),
    ToolCallBegun(0, "call_1", "weather"),
    ToolCallArguments(0, '{"city": '),
    ToolCallArguments(0, '"Paris"}'),
    ToolCallBegun(1, "call_2", "time"),
    ToolCallArguments(1, "{}"),
]
ENDED = Ended(
    "tool_calls",
    None,
    tuple(range(20)),
    Tokens(prompt_tokens=30, completion_tokens=20, cached_tokens=10, reasoning_tokens=4),
    Timings(0.5, 0.4, 2.0, 19),
    Snapshot(100, 50, 60, 20, ()),
)
CALLS = [("call_1", "weather", {"city": "Paris"}), ("call_2", "time", {})]


@pytest.fixture
def collected() -> Collected:
    made = Collected()
    for event in (*DELTAS, ENDED):
        made.add(event)
    return made


def words_of(writer: StreamWriter) -> list[dict[str, Any]]:
    said = writer.begin() + b"".join(writer.event(event) for event in (*DELTAS, ENDED))
    lines = said.decode().splitlines()
    if not said.startswith(b"{"):
        lines = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def test_openai_chat(collected: Collected) -> None:
    reply = ChatReply("m", True, True)
    message = reply.whole(REQUEST, collected)["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("I look. ", "hm, so")
    assert [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]
    ] == CALLS
    chunks = words_of(reply.writer(REQUEST))
    calls: dict[int, list[str]] = {}
    for chunk in chunks[:-1]:
        for call in chunk["choices"][0]["delta"].get("tool_calls", ()):
            calls.setdefault(call["index"], []).append(call["function"]["arguments"])
    assert ["".join(pieces) for pieces in calls.values()] == ['{"city": "Paris"}', "{}"]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]][-1] == "tool_calls"
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 10
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert "".join(c["choices"][0]["delta"].get("reasoning_content", "") for c in chunks[:-1]) == "hm, so"


def test_anthropic_messages(collected: Collected) -> None:
    reply = MessageReply("m", True)
    whole = reply.whole(REQUEST, collected)
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [(b["id"], b["name"], b["input"]) for b in whole["content"][2:]] == CALLS
    assert whole["stop_reason"] == "tool_use"
    assert whole["usage"]["input_tokens"] == 20 and whole["usage"]["cache_read_input_tokens"] == 10
    events = words_of(reply.writer(REQUEST))
    opened = [(e["index"], e["content_block"]["type"]) for e in events if e["type"] == "content_block_start"]
    assert opened == [(0, "thinking"), (1, "text"), (2, "tool_use"), (3, "tool_use")]
    assert [e["index"] for e in events if e["type"] == "content_block_stop"] == [0, 1, 2, 3]
    pieces = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta" and e["index"] == 2]
    assert "".join(pieces) == '{"city": "Paris"}'


def test_openai_responses(collected: Collected) -> None:
    reply = ResponseReply("m", {"stream": True})
    output = reply.whole(REQUEST, collected)["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in output[2:]] == CALLS
    events = words_of(reply.writer(REQUEST))
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"] == output
    assert [e["output_index"] for e in events if e["type"] == "response.output_item.added"] == [0, 1, 2, 3]
    assert [e["arguments"] for e in events if e["type"] == "response.function_call_arguments.done"][1] == "{}"


def test_ollama_chat(collected: Collected) -> None:
    reply = OllamaReply("m", True, "message")
    message = reply.whole(REQUEST, collected)["message"]
    assert (message["content"], message["thinking"]) == ("I look. ", "hm, so")
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
        c[1:] for c in CALLS
    ]
    lines = words_of(reply.writer(REQUEST))
    told = [call for line in lines for call in line["message"].get("tool_calls", ())]
    assert told == message["tool_calls"]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]


@pytest.mark.parametrize(
    "reply",
    [ChatReply("m", True, False), MessageReply("m", True), ResponseReply("m", {}), OllamaReply("m", True, "message")],
)
def test_an_error_in_the_stream_is_told(reply: Any) -> None:
    said = reply.writer(REQUEST).failed(Draining("the server ended", "ask again")).decode()
    assert "the server ended" in said


TEMPLATE_FORM = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {
        "role": "assistant",
        "content": "I look. ",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
        ],
    },
    {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
    {"role": "user", "content": "And?"},
]


def test_a_conversation_is_the_same_from_every_api() -> None:
    call = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assistant = {"role": "assistant", "content": "I look. ", "reasoning_content": "hm"}
    openai = [
        {"role": "developer", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "U"}]},
        {**assistant, "tool_calls": [{"id": "call_1", "type": "function", "function": call}]},
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
        {"role": "user", "content": "And?"},
    ]
    assert list(read_messages(openai)) == TEMPLATE_FORM
    items = [
        {"role": "user", "content": "U"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look. "}]},
        {"type": "function_call", "call_id": "call_1", **call},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"role": "user", "content": "And?"},
    ]
    assert list(read_input(items, "S")) == TEMPLATE_FORM
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look. "},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}},
    ]
    answered = [{"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}, {"type": "text", "text": "And?"}]
    turns = [{"role": "user", "content": "U"}, {"role": "assistant", "content": blocks}]
    assert list(read_conversation("S", [*turns, {"role": "user", "content": answered}])) == TEMPLATE_FORM
    called = [{"id": "call_1", "function": {"name": "weather", "arguments": {"city": "Paris"}}}]
    ollama = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "I look. ", "thinking": "hm", "tool_calls": called},
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1", "tool_name": "weather"},
        {"role": "user", "content": "And?"},
    ]
    named = [{**message, "name": "weather"} if message["role"] == "tool" else message for message in TEMPLATE_FORM]
    assert list(read_ollama(ollama)) == named


@pytest.mark.parametrize(
    "wrong",
    [
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "not json"}}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}],
        [{"role": "assistant", "tool_calls": "f"}],
        [{"role": "tool", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "text"}]}],
        ["hello"],
    ],
)
def test_messages_that_are_none_are_refused_with_their_place(wrong: list[Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        read_messages(wrong)
    assert caught.value.param.startswith("messages[0]")
