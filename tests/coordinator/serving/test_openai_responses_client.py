"""OpenAI's responses through their own client, against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess

QUESTION = "What is the capital of France?"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_a_response(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=QUESTION, instructions="Be brief.")
    assert "Paris" in response.output_text
    assert response.status == "completed" and response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream_of_typed_events(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model=MODEL, input=QUESTION, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.completed" and events[-1].response.output_text == text


def test_the_stream_helper(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=QUESTION) as stream:
        for _ in stream:
            pass
        assert "Paris" in stream.get_final_response().output_text


def test_a_conversation_of_items(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=QUESTION)
    items = [{"role": "user", "content": QUESTION}, *(item.to_dict() for item in first.output)]
    items.append({"role": "user", "content": [{"type": "input_text", "text": "And of Italy?"}]})
    second = client.responses.create(model=MODEL, input=items)
    assert second.output_text and second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens > 0


def test_a_limit_makes_it_incomplete(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=2)
    assert response.status == "incomplete" and response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_logprobs(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model=MODEL, input=QUESTION, include=["message.output_text.logprobs"], top_logprobs=2
    )
    (item,) = response.output
    assert item.type == "message" and item.content[0].type == "output_text"
    told = item.content[0].logprobs
    assert told is not None and "".join(token.token for token in told) == response.output_text
    assert all(len(token.top_logprobs) == 2 for token in told)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client: openai.OpenAI, wrong: dict, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": MODEL, "input": QUESTION, **wrong})
    assert caught.value.param == param


def test_nothing_is_stored(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
