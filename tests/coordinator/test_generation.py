"""One answer: chunks of its prompt, its limits, its ends, its thinking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamoe_coordinator.events import PrefillProgress, TokenEvent
from streamoe_coordinator.generation import Want
from streamoe_coordinator.interrupt import StopFlag
from streamoe_coordinator.text import Text, load_text
from streamoe_engine.errors import ContextFull, NonFiniteLogits
from tests.coordinator.fake_band import VOCAB, FakeBand, ask, logits_after, session_of, stop_after
from tests.tiny_tokenizer import CHAT_TEMPLATE, write_tokenizer


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


def test_a_stop_before_the_first_chunk_runs_nothing(text: Text, band: FakeBand) -> None:
    stop = StopFlag()
    stop.request()
    _, finished, _ = ask(session_of(band, text), "hello", stop)
    assert (finished.reason, band.calls, finished.timings.ttft_s) == ("cancelled", [], None)


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
