"""Ollama's own client against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import ollama
import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as made:
        yield made


def test_chat(client: ollama.Client) -> None:
    answer = client.chat(MODEL, messages=QUESTION)
    assert "Paris" in (answer.message.content or "")
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.eval_count and answer.prompt_eval_count and answer.eval_duration


def test_a_streamed_chat_is_the_same(client: ollama.Client) -> None:
    whole = client.chat(MODEL, messages=QUESTION)
    parts = list(client.chat(MODEL, messages=QUESTION, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_generate_and_raw(client: ollama.Client) -> None:
    question = QUESTION[0]["content"]
    asked = client.generate(MODEL, question, system="Be brief.", options={"num_predict": 5})
    assert asked.response and (asked.eval_count, asked.done_reason) == (5, "length")
    parts = list(client.generate(MODEL, question, stream=True, system="Be brief.", options={"num_predict": 5}))
    assert "".join(part.response for part in parts) == asked.response
    assert client.generate(MODEL, "Once upon a time", raw=True, options={"num_predict": 5, "seed": 3}).response


def test_options_are_honoured(client: ollama.Client) -> None:
    def tell(seed: int) -> str:
        options = {"seed": seed, "temperature": 1.3, "num_predict": 16, "top_p": 0.99, "top_k": 200, "num_ctx": 2048}
        return client.chat(MODEL, messages=QUESTION, options=options).message.content or ""

    assert tell(1) == tell(1) != tell(2)
    stopped = client.chat(MODEL, messages=QUESTION, options={"stop": ["of France"]})
    assert stopped.message.content == "The capital "


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"options": {"mirostat": 1}}, "mirostat"),
        ({"options": {"num_ctx": 100_000}}, "100000 tokens is over the planned 4096"),
        ({"think": True}, "no thinking"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "no image encoder"),
    ],
)
def test_what_cannot_be_honoured_is_refused(client: ollama.Client, wrong: dict, words: str) -> None:
    with pytest.raises(ollama.ResponseError, match=words) as caught:
        client.chat(**{"model": MODEL, "messages": QUESTION, **wrong})
    assert caught.value.status_code == 400


def test_another_model_is_not_found(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="llama-x") as caught:
        client.chat("llama-x", messages=QUESTION)
    assert caught.value.status_code == 404


def test_lists(client: ollama.Client, server: ServerProcess) -> None:
    (listed,) = client.list().models
    assert listed.model is not None and listed.size and listed.digest
    assert "completion" in (client.show(listed.model).capabilities or [])
    (running,) = client.ps().models
    assert running.model == listed.model
    assert server.get("/api/version") == (200, {"version": version("streamoe")})
    assert client.chat(listed.model, messages=QUESTION).message.content
