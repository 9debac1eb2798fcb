"""Conversations: what is run again and what is not, and staying usable after a stop or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamoe_coordinator.events import Finished, PrefillProgress, TokenEvent
from streamoe_coordinator.generation import Generator, Request, Want
from streamoe_coordinator.interrupt import StopFlag
from streamoe_coordinator.sampling import Sampler, SamplingParams
from streamoe_coordinator.text import Text, load_text
from streamoe_engine.errors import ContextFull, ReadFailed
from tests.coordinator.fake_band import VOCAB, FakeBand, ask, logits_after, session_of, stop_after
from tests.running import open_band
from tests.tiny_tokenizer import CHAT_TEMPLATE, write_tokenizer


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


def test_a_prompt_that_does_not_fit_is_refused_before_computing(text: Text, band: FakeBand) -> None:
    session = session_of(band, text)
    ask(session, "hello")
    calls, messages = list(band.calls), list(session.messages)
    with pytest.raises(ContextFull, match="400"):
        ask(session, "x" * 500)
    assert (band.calls, session.messages) == (calls, messages)
    _, finished, _ = ask(session, "short")
    assert finished.usage.cached_tokens > 0


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


def test_requests_in_one_process_equal_a_fresh_one(embedded_folder: Path) -> None:
    # The real band and model, recurrent layers among them: what one answer leaves must not reach another.
    text, _ = load_text(embedded_folder)
    questions = ["What is 2 plus 2?", "And who are you?", "Name a colour."]
    with open_band(embedded_folder, 100, ctx_tokens=512, backend="auto") as band:
        session = session_of(band, text, max_tokens=6)
        answers = [ask(session, question)[1] for question in questions]
        history = [{"role": message.role, "content": message.content} for message in session.messages[:-1]]
        session.clear()
        again = ask(session, questions[0])[1]
    assert [answer.usage.cached_tokens > 0 for answer in answers] == [False, True, True]
    assert again.token_ids == answers[0].token_ids
    prompt = text.tokenizer.encode(text.render(history), with_special_tokens=False)
    with open_band(embedded_folder, 0, ctx_tokens=512, guess="none", backend="auto") as band:
        generator = Generator(band, text.tokenizer, Sampler(SamplingParams()))
        *_, last = generator.generate(Request(prompt, max_tokens=6), StopFlag())
    assert isinstance(last, Finished)
    assert last.usage.prompt_tokens == answers[-1].usage.prompt_tokens
    assert last.token_ids == answers[-1].token_ids
