"""A stand-in for a band, and short ways to ask a session."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from streamoe_coordinator.events import Event, Finished, TokenEvent
from streamoe_coordinator.generation import Want
from streamoe_coordinator.interrupt import StopFlag
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.session import ChatSession
from streamoe_coordinator.text import Text
from streamoe_engine.plan import Plan
from streamoe_engine.telemetry import LayerCounts, Snapshot

VOCAB = 260


class FakeBand:
    """Stands for a band where the real one hides what is asked: which tokens ran, in which state, how many at once.

    Its logits depend on every token the state has run and on nothing else, as a model's do, so that a state that
    lost, gained or repeated a token gives another answer. It refuses what a real band refuses.
    """

    def __init__(self, end_id: int, ctx_tokens: int = 400, chunk_tokens: int = 7) -> None:
        self.plan = Plan(1, (), 4, 4, 1, 1, 0, 0, ctx_tokens, "f32", chunk_tokens, 2, 2, 8, "float32", "mlx")
        self.end_id = end_id
        self.never_ends = False
        self.states: list[list[int]] = []
        self.calls: list[int] = []
        self.before_run: Callable[[FakeBand], None] = lambda _: None

    @property
    def ctx_tokens(self) -> int:
        return self.plan.ctx_tokens

    @property
    def chunk_tokens(self) -> int:
        return self.plan.chunk_tokens

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
