"""OpenAI's own client against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess
from tests.waiting import comes_to

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
NEVER_ENDS = {"0": -100, "2": -100}  # the tokens that end an answer
STORY = [{"role": "user", "content": "Tell me a long story about a fox and a river."}]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_an_answer_with_its_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION)
    (choice,) = answer.choices
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens > 1
    assert answer.model_extra is not None and answer.model_extra["timings"]["ttft_s"] > 0


def test_a_stream_is_the_same_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION)
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens  # type: ignore[union-attr]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=QUESTION) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert "Paris" in (final.choices[0].message.content or "")


def test_the_second_turn_reads_only_what_is_new(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Name a colour of the sky, please."}]
    first = client.chat.completions.create(model=MODEL, messages=messages)
    messages += [{"role": "assistant", "content": first.choices[0].message.content or ""}]
    messages += [{"role": "user", "content": "And another?"}]
    second = client.chat.completions.create(model=MODEL, messages=messages)
    assert first.usage is not None and second.usage is not None
    details = second.usage.prompt_tokens_details
    assert details is not None and (details.cached_tokens or 0) >= first.usage.prompt_tokens


@pytest.mark.parametrize("as_list", [False, True])
def test_a_stop_sequence_ends_it_and_is_not_shown(client: openai.OpenAI, as_list: bool) -> None:
    def tell(**more: Any) -> Any:
        return client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=40, **more)

    story = tell().choices[0].message.content
    word = story[len(story) // 2 : len(story) // 2 + 5]  # over the edges of tokens
    stop = ["zzz", word] if as_list else word
    answer = tell(stop=stop).choices[0]
    assert (answer.message.content, answer.finish_reason) == (story[: story.index(word)], "stop")
    streamed = tell(stop=stop, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == answer.message.content


def test_a_seed_repeats(client: openai.OpenAI) -> None:
    def tell(seed: int) -> str:
        answer = client.chat.completions.create(
            model=MODEL, messages=STORY, seed=seed, temperature=1.2, top_p=0.98, max_tokens=24
        )
        return answer.choices[0].message.content or ""

    assert tell(5) == tell(5) != tell(6)


def test_max_tokens_is_a_reason(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=STORY, max_completion_tokens=3)
    assert (answer.choices[0].finish_reason, answer.usage and answer.usage.completion_tokens) == ("length", 3)


def test_logprobs_are_the_models(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        logprobs=True,
        top_logprobs=3,
        temperature=0,
        extra_body={"repetition_penalty": 1},
    )
    told = answer.choices[0].logprobs
    assert told is not None and told.content
    assert "".join(token.token for token in told.content) == answer.choices[0].message.content
    for token in told.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == token.logprob <= 0, "greedy takes the likeliest"
        assert bytes(token.bytes or ()).decode() == token.token
    streamed = client.chat.completions.create(
        model=MODEL, messages=QUESTION, logprobs=True, stream=True, extra_body={"repetition_penalty": 1}
    )
    pieces = [chunk.choices[0].logprobs for chunk in streamed]
    tokens = [token.token for piece in pieces if piece is not None for token in piece.content or ()]
    assert tokens == [token.token for token in told.content]


def test_penalties_and_bias_change_the_answer(client: openai.OpenAI) -> None:
    def tell(**more: Any) -> tuple[str, int]:
        extra = {"repetition_penalty": 1, **more.pop("extra_body", {})}
        made = client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=24, extra_body=extra, **more)
        return made.choices[0].message.content or "", made.usage.completion_tokens if made.usage else 0

    plain, _ = tell()
    answers = [tell(frequency_penalty=2.0), tell(presence_penalty=2.0), tell(extra_body={"repetition_penalty": 1.5})]
    assert plain not in [text for text, _ in answers]
    assert tell(logit_bias={"2": 100})[1] == 0, "the end is the likeliest from the beginning"
    assert tell(logit_bias=NEVER_ENDS)[1] == 24


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"n": 2}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"store": True}, "store"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"extra_body": {"enable_thinking": True}}, "thinking"),
        ({"extra_body": {"chat_template_kwargs": {"x": 1}}}, "chat_template_kwargs.x"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client: openai.OpenAI, wrong: dict, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": MODEL, "messages": QUESTION, **wrong})
    assert caught.value.param == param
    assert caught.value.code == "BadRequest" and caught.value.type == "invalid_request_error"


def test_an_image_needs_an_encoder(client: openai.OpenAI) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{dot}"}}
    with pytest.raises(openai.BadRequestError, match="no image encoder"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])


def test_unknown_fields_are_named_not_refused(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, max_tokens=1, extra_body={"zebra": 1, "apple": 2}
    )
    assert raw.headers["x-streamoe-ignored"] == "apple, zebra"


@pytest.mark.parametrize(("name", "shown"), [(" ", ""), (" pear ", "pear"), ("a\nb", "a?b")])
def test_a_name_that_no_header_can_hold_is_answered(client: openai.OpenAI, name: str, shown: str) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, max_tokens=1, extra_body={name: None}
    )
    assert raw.headers["x-streamoe-ignored"] == shown


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        client.chat.completions.create(model="gpt-x", messages=QUESTION)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-x")


def test_too_long_a_prompt_is_told_with_both_numbers(client: openai.OpenAI, server: ServerProcess) -> None:
    before = server.telemetry()["tokens_run"]
    for words in (5_000, 200_000):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * words}])
        assert caught.value.code == "ContextFull"
        assert "4096" in str(caught.value) and isinstance(caught.value.body, dict)
        assert caught.value.body["needed_tokens"] > caught.value.body["ctx_tokens"] == 4096
    assert server.telemetry()["tokens_run"] == before


def test_models_are_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.owned_by == "local" and model.model_extra is not None
    assert model.model_extra["streamoe"]["ctx_tokens"] == 4096
    assert client.models.retrieve(model.id).id == model.id


def test_a_completion_continues_a_text(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=12, logprobs=2)
    choice = whole.choices[0]
    assert choice.text and choice.logprobs is not None and choice.logprobs.tokens is not None
    assert whole.usage is not None and len(choice.logprobs.tokens) == whole.usage.completion_tokens
    assert choice.text in "".join(choice.logprobs.tokens)
    streamed = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=12, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text


def test_a_client_that_leaves_a_stream_frees_its_place(client: openai.OpenAI, server: ServerProcess) -> None:
    before = server.num_cancelled()
    with client.chat.completions.create(
        model=MODEL, messages=STORY, stream=True, max_tokens=4000, logit_bias=NEVER_ENDS
    ) as stream:
        next(iter(stream))
    comes_to(server.num_cancelled, before + 1)
    server.wait_idle()


def test_a_client_that_leaves_without_streaming_frees_its_place(server: ServerProcess) -> None:
    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            asking = asyncio.create_task(
                client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=4000, logit_bias=NEVER_ENDS)
            )
            await asyncio.to_thread(comes_to, server.num_asked, 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    server.wait_idle()
    before = server.num_cancelled()
    asyncio.run(leave())
    comes_to(server.num_cancelled, before + 1)
    server.wait_idle()


def test_sixteen_requests_with_one_system_prompt_read_it_once(server: ServerProcess) -> None:
    import concurrent.futures

    system = " ".join(f"Rule {n}: be kind to visitor number {n * 7919 % 1000}." for n in range(78))

    def ask(n: int) -> tuple[int, int, str]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Who is visitor {n}?"}]
        status, body = server.post("/v1/chat/completions", {"model": MODEL, "messages": messages, "max_tokens": 12})
        assert status == 200, body
        usage = body["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return usage["prompt_tokens"], cached, body["choices"][0]["message"]["content"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(16)))
    assert all(prompt > 1000 for prompt, _, _ in together)
    assert sum(cached >= 0.95 * prompt for prompt, cached, _ in together) >= 15
    alone = [ask(n) for n in (0, 7, 15)]
    assert [text for _, _, text in alone] == [together[n][2] for n in (0, 7, 15)]


def test_the_raw_stream_keeps_its_headers(server: ServerProcess) -> None:
    with httpx2.stream(
        "POST",
        f"{server.url}/v1/chat/completions",
        json={"model": MODEL, "messages": QUESTION, "stream": True},
        timeout=30,
    ) as response:
        lines = list(response.iter_lines())
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["content-type"].startswith("text/event-stream")
    assert any(line.startswith(": prefill {") for line in lines)
    assert lines[-2:] == ["data: [DONE]", ""]
