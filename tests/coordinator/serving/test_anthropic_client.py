"""Anthropic's own client against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess
from tests.waiting import comes_to

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message_with_its_usage(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model=MODEL, max_tokens=40, messages=QUESTION)
    assert "Paris" in text_of(message)
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    usage = message.usage
    counted = client.messages.count_tokens(model=MODEL, messages=QUESTION)
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert usage.output_tokens > 1


def test_a_stream_is_the_same_message(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model=MODEL, max_tokens=40, messages=QUESTION)
    with client.messages.stream(model=MODEL, max_tokens=40, messages=QUESTION) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.index("content_block_start") < kinds.index("content_block_delta") < kinds.index("content_block_stop")
    assert text_of(final) == text_of(whole)
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == whole.usage.output_tokens


def test_system_blocks_and_a_conversation(client: anthropic.Anthropic) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "Paris."}]}]
    messages.append(
        {"role": "user", "content": [{"type": "text", "text": "And of "}, {"type": "text", "text": "Italy?"}]}
    )
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    message = client.messages.create(model=MODEL, max_tokens=12, messages=messages, system=system)
    assert text_of(message)
    again = client.messages.create(model=MODEL, max_tokens=12, messages=messages, system=system)
    assert text_of(again) == text_of(message)


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model=MODEL, max_tokens=40, messages=QUESTION, stop_sequences=["of France"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "of France")
    assert text_of(message) == "The capital "


def test_a_limit_is_a_reason(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model=MODEL, max_tokens=2, messages=QUESTION)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"extra_body": {"temperature": 1.5}}, "temperature"),
        ({"messages": [{"role": "system", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [*QUESTION, {"role": "assistant", "content": "The"}]}, "the last message"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "no thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\[0\].type"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}}],
                    }
                ]
            },
            "nothing is fetched",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(client: anthropic.Anthropic, wrong: dict, words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words) as caught:
        client.messages.create(**{"model": MODEL, "max_tokens": 4, "messages": QUESTION, **wrong})
    assert isinstance(caught.value.body, dict) and caught.value.body["error"]["type"] == "invalid_request_error"


def test_another_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude-x"):
        client.messages.create(model="claude-x", max_tokens=4, messages=QUESTION)


def test_a_client_that_leaves_frees_its_place(client: anthropic.Anthropic, server: ServerProcess) -> None:
    before = server.num_cancelled()
    story: list[Any] = [{"role": "user", "content": "Tell a very long story about a fox, a river and a mountain."}]
    # The likeliest tokens are a story of many hundred: it does not end by itself before its client is missed.
    more = {"temperature": 0}
    with client.messages.stream(model=MODEL, max_tokens=4000, messages=story, extra_body=more) as stream:
        next(iter(stream.text_stream))
    comes_to(server.num_cancelled, before + 1)
    server.wait_idle()
