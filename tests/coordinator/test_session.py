"""Conversations: what is run again and what is not, stopping, and staying usable afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.events import Event, Finished, PrefillProgress, TokenEvent
from streamoe_coordinator.generation import Want
from streamoe_coordinator.interrupt import StopFlag
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.session import ChatSession
from streamoe_coordinator.text import Text, load_text
from streamoe_engine.errors import ContextFull, NonFiniteLogits, ReadFailed
from streamoe_engine.plan import Plan
from streamoe_engine.telemetry import LayerCounts, Snapshot
from tests.tiny_tokenizer import CHAT_TEMPLATE, write_tokenizer

VOCAB = 260


class FakeBand:
    """Stands for a band where the real one hides what is asked: which tokens ran, in which state, how many at once.

    Its logits depend on every token the state has run and on nothing else, as a model's do, so that a state that
    lost, gained or repeated a token gives another answer. It refuses what a real band refuses.
    """

    def __init__(self, end_id: int, ctx_tokens: int = 400, chunk_tokens: int = 7) -> None:
        self.plan = Plan(1, (), 4, 4, 1, 1, 0, 0, ctx_tokens, "f32", chunk_tokens, 2, 2, 8, "float32")
        self.end_id = end_id
        self.never_ends = False
        self.states: list[list[int]] = []
        self.calls: list[int] = []
        self.before_run: Callable[[FakeBand], None] = lambda _: None

    def new_state(self) -> list[int]:
        self.states.append([])
        return self.states[-1]

    def run(self, state: list[int], inputs: np.ndarray, want: Want) -> np.ndarray | None:
        assert state is self.states[-1], "an old state was run on"
        assert inputs.dtype == np.int32 and 1 <= len(inputs) <= self.plan.chunk_tokens
        assert len(state) + len(inputs) <= self.plan.ctx_tokens
        self.before_run(self)
        state.extend(inputs.tolist())
        self.calls.append(len(inputs))
        return logits_after(state, -1 if self.never_ends else self.end_id) if want == "last_logits" else None

    def telemetry(self) -> Snapshot:
        return Snapshot(1, 1, 1, sum(self.calls), (LayerCounts(0, picks=2 * sum(self.calls)),))


def logits_after(tokens: list[int], end_id: int) -> np.ndarray:
    """(VOCAB,) float32: mostly a letter chosen by all tokens so far, sometimes the end, unless end_id is -1."""
    digest = hashlib.sha256(np.asarray(tokens, dtype=np.int32).tobytes()).digest()
    logits = np.zeros(VOCAB, dtype=np.float32)
    logits[end_id if digest[0] < 16 and end_id >= 0 else ord("a") + digest[1] % 26] = 1.0
    return logits


@pytest.fixture
def text(tmp_path: Path) -> Text:
    write_tokenizer(tmp_path, VOCAB)
    return load_text(tmp_path)[0]


@pytest.fixture
def band(text: Text) -> FakeBand:
    (end_id,) = text.tokenizer.eos_ids
    return FakeBand(end_id)


def session_of(band: Any, text: Text, max_tokens: int | None = 30, **options: Any) -> ChatSession:
    return ChatSession(band, text, SamplingParams(max_tokens=max_tokens), **options)


def ask(session: ChatSession, content: str, stop: StopFlag | None = None) -> tuple[str, Finished, list[Event]]:
    events = list(session.answer(content, stop or StopFlag()))
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    return "".join(e.text for e in events if isinstance(e, TokenEvent)), events[-1], events


def stop_after(session: ChatSession, content: str, num_events: int, kind: type = object) -> tuple[str, Finished]:
    stop, answer, finished = StopFlag(), "", None
    for event in session.answer(content, stop):
        num_events -= isinstance(event, kind)
        if num_events == 0:
            stop.request()
        if isinstance(event, TokenEvent):
            answer += event.text
        if isinstance(event, Finished):
            finished = event
    assert finished is not None
    return answer, finished


def test_the_prompt_runs_in_chunks_and_progress_is_told(band: FakeBand, text: Text) -> None:
    _, finished, events = ask(session_of(band, text), "hello there")
    num_prompt = finished.usage.prompt_tokens
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [event.done_tokens for event in progress] == [*range(7, num_prompt, 7), num_prompt]
    assert {event.total_tokens for event in progress} == {num_prompt}
    assert band.calls[: len(progress)] == [7] * (num_prompt // 7) + [num_prompt % 7]
    assert set(band.calls[len(progress) :]) <= {1}


def test_the_answer_is_what_the_model_says(band: FakeBand, text: Text) -> None:
    answer, finished, _ = ask(session_of(band, text), "hello")
    prompt = text.tokenizer.encode(text.render([{"role": "user", "content": "hello"}]), with_special_tokens=False)
    expected: list[int] = []
    while len(expected) < 30 and (token := int(logits_after(prompt + expected, band.end_id).argmax())) != band.end_id:
        expected.append(token)
    assert list(finished.token_ids) == expected
    assert answer == text.tokenizer.decode(expected)
    assert finished.usage.completion_tokens == len(expected)


@pytest.mark.parametrize("questions", [["one", "two", "three"], ["a" * 60, "b"]])
def test_a_later_turn_runs_only_what_is_new(text: Text, band: FakeBand, questions: list[str]) -> None:
    session = session_of(band, text)
    for turn, question in enumerate(questions):
        before = sum(band.calls)
        _, finished, events = ask(session, question)
        run = [event for event in events if isinstance(event, PrefillProgress)][-1].total_tokens
        assert finished.usage.prompt_tokens == finished.usage.cached_tokens + run
        assert (finished.usage.cached_tokens == 0) == (turn == 0)
        assert finished.counts.tokens_run == sum(band.calls) - before
        assert finished.counts.tokens_run == run + finished.timings.num_decode_steps
    assert len(band.states) == 1


def test_going_on_gives_what_a_cold_run_gives(text: Text, band: FakeBand) -> None:
    session = session_of(band, text)
    for question in ("one", "two", "three"):
        answer, finished, _ = ask(session, question)
    history = [{"role": m.role, "content": m.content} for m in session.messages[:-1]]
    cold = text.tokenizer.encode(text.render(history), with_special_tokens=False)
    assert int(logits_after(cold, band.end_id).argmax()) == finished.token_ids[0]
    assert session.messages[-1].content == answer


def test_an_answers_tokens_stay_as_they_were_generated(embedded_checkpoint: Path) -> None:
    # The fake spells in single letters what the tokenizer would spell in words.
    text, _ = load_text(embedded_checkpoint)
    letters = [text.tokenizer.encode(letter, with_special_tokens=False)[0] for letter in "hello"]
    assert text.tokenizer.encode("hello", with_special_tokens=False) != letters

    class Speller(FakeBand):
        """Says "hello", a letter a token, then ends."""

        def run(self, state: list[int], inputs: np.ndarray, want: Want) -> np.ndarray | None:
            super().run(state, inputs, "nothing")
            logits = np.zeros(49_152, dtype=np.float32)
            num_said = next((n for n in range(5, 0, -1) if state[-n:] == letters[:n]), 0)
            logits[[*letters, self.end_id][num_said]] = 1.0
            return logits

    band = Speller(min(text.tokenizer.eos_ids))
    session = session_of(band, text)
    answer, first, _ = ask(session, "say it")
    assert (answer, list(first.token_ids)) == ("hello", letters)
    _, second, _ = ask(session, "again")
    assert len(band.states) == 1
    assert second.usage.cached_tokens == first.usage.prompt_tokens + len(letters)


def test_a_template_that_rewrites_history_begins_a_new_state(tmp_path: Path, band: FakeBand) -> None:
    write_tokenizer(tmp_path, VOCAB)
    numbered = CHAT_TEMPLATE.replace("{% for message", "{{ messages | length }}{% for message")
    (tmp_path / "chat_template.jinja").write_text(numbered)
    session = session_of(band, load_text(tmp_path)[0])
    ask(session, "one")
    _, finished, _ = ask(session, "two")
    assert finished.usage.cached_tokens == 0
    assert len(band.states) == 2


def test_clear_forgets_all_but_the_system_message(band: FakeBand, text: Text) -> None:
    session = session_of(band, text, system="be brief")
    first, _, _ = ask(session, "one")
    ask(session, "two")
    session.clear()
    assert [message.role for message in session.messages] == ["system"]
    again, finished, _ = ask(session, "one")
    assert again == first
    assert finished.usage.cached_tokens == 0


@pytest.mark.parametrize("max_tokens", [1, 3])
def test_an_answer_ends_at_its_limit(band: FakeBand, text: Text, max_tokens: int) -> None:
    band.never_ends = True
    _, finished, _ = ask(session_of(band, text, max_tokens), "hello")
    assert (finished.reason, len(finished.token_ids)) == ("length", max_tokens)
    assert (finished.timings.tokens_per_s is None) == (max_tokens == 1)


def test_an_answer_ends_when_the_context_is_full(text: Text, band: FakeBand) -> None:
    num_prompt = len(text.tokenizer.encode(text.render([{"role": "user", "content": "hi"}]), with_special_tokens=False))
    small = FakeBand(band.end_id, ctx_tokens=num_prompt + 2)
    _, finished, _ = ask(session_of(small, text, None), "hi")
    assert (finished.reason, len(finished.token_ids)) == ("length", 2)


def test_a_prompt_that_does_not_fit_is_refused_before_computing(text: Text, band: FakeBand) -> None:
    session = session_of(band, text)
    ask(session, "hello")
    calls, messages = list(band.calls), list(session.messages)
    with pytest.raises(ContextFull, match="400"):
        ask(session, "x" * 500)
    assert (band.calls, session.messages) == (calls, messages)
    _, finished, _ = ask(session, "short")
    assert finished.usage.cached_tokens > 0


def test_the_fullest_prompt_gets_one_token(text: Text, band: FakeBand) -> None:
    def num_tokens(content: str) -> int:
        prompt = text.render([{"role": "user", "content": content}])
        return len(text.tokenizer.encode(prompt, with_special_tokens=False))

    content = "x" * (399 - num_tokens(""))
    assert num_tokens(content) == 399
    _, finished, _ = ask(session_of(band, text, None), content)
    assert len(finished.token_ids) <= 1
    with pytest.raises(ContextFull):
        ask(session_of(band, text, None), content + "x")


@pytest.mark.parametrize("num_events", range(1, 12))
def test_a_stopped_answer_leaves_a_session_that_goes_on(text: Text, band: FakeBand, num_events: int) -> None:
    band.never_ends = True
    session = session_of(band, text)
    answer, finished = stop_after(session, "tell me something", num_events)
    assert finished.reason == "cancelled"
    roles = [message.role for message in session.messages]
    assert roles == (["user", "assistant"] if finished.token_ids else [])
    if finished.token_ids:
        assert session.messages[-1].content == answer
    _, after, _ = ask(session, "go on")
    history = [{"role": m.role, "content": m.content} for m in session.messages[:-1]]
    cold = text.tokenizer.encode(text.render(history), with_special_tokens=False)
    assert band.states[-1][: len(cold)] == cold
    assert after.reason == "length"


def test_a_stop_before_the_first_chunk_runs_nothing(text: Text, band: FakeBand) -> None:
    stop = StopFlag()
    stop.request()
    _, finished, _ = ask(session_of(band, text), "hello", stop)
    assert (finished.reason, band.calls, finished.timings.ttft_s) == ("cancelled", [], None)


def test_an_abandoned_answer_counts_as_stopped(text: Text, band: FakeBand) -> None:
    session = session_of(band, text)
    events = session.answer("hello", StopFlag())
    for event in events:
        if isinstance(event, TokenEvent):
            break
    events.close()  # type: ignore[attr-defined]
    assert [message.role for message in session.messages] == ["user", "assistant"]
    _, finished, _ = ask(session, "go on")
    assert finished.usage.cached_tokens > 0


@pytest.mark.parametrize("at_call", [0, 2, 5, 8])
def test_after_an_error_the_history_is_as_before_and_the_state_is_new(text: Text, band: FakeBand, at_call: int) -> None:
    session = session_of(band, text)
    ask(session, "one")
    messages, fail_at = list(session.messages), len(band.calls) + at_call

    def fail(band: FakeBand) -> None:
        if len(band.calls) == fail_at:
            band.calls.append(0)
            raise ReadFailed(Path("experts/layer-0000.records"), 0, 4096, "gone")

    band.before_run = fail
    with pytest.raises(ReadFailed):
        ask(session, "a longer question than that")
    assert session.messages == messages
    band.before_run = lambda _: None
    _, finished, _ = ask(session, "two")
    assert finished.usage.cached_tokens == 0
    assert len(band.states) == 2


def test_logits_that_are_no_numbers_end_the_answer_with_an_error(text: Text, band: FakeBand) -> None:
    class Broken(FakeBand):
        """Answers NaN, as a damaged file or a broken kernel does."""

        def run(self, state: list[int], inputs: np.ndarray, want: Want) -> np.ndarray | None:
            logits = super().run(state, inputs, want)
            return None if logits is None else logits * np.float32("nan")

    with pytest.raises(NonFiniteLogits):
        ask(session_of(Broken(band.end_id), text), "hello")


def test_thinking_the_prompt_opened_is_told_apart(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, VOCAB)
    (tmp_path / "chat_template.jinja").write_text(CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n"))
    text, _ = load_text(tmp_path)
    (end_id,) = text.tokenizer.eos_ids
    said = [*text.tokenizer.encode("hm</think>yes", with_special_tokens=False), end_id]

    class Thinker(FakeBand):
        """Thinks "hm", answers "yes"."""

        def run(self, state: list[int], inputs: np.ndarray, want: Want) -> np.ndarray | None:
            super().run(state, inputs, "nothing")
            logits = np.zeros(VOCAB, dtype=np.float32)
            num_said = next((n for n in range(len(said) - 1, 0, -1) if state[-n:] == said[:n]), 0)
            logits[said[num_said]] = 1.0
            return logits

    session = session_of(Thinker(end_id), text)
    _, finished, events = ask(session, "?")
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert "".join(event.text for event in tokens if event.is_thinking) == "hm"
    assert "".join(event.text for event in tokens if not event.is_thinking) == "yes"
    assert [event.token_id for event in tokens if event.token_id is not None] == list(finished.token_ids)
    assert session.messages[-1].content == "hm</think>yes"
    stop_after(session, "again", 1, TokenEvent)
    assert session.messages[-1].content == "", "unfinished thinking is no answer"
