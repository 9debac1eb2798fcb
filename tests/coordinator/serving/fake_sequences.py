"""A stand-in for a band that runs several sequences, and ways to ask a scheduler."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamoe_coordinator.generation import Want
from streamoe_coordinator.runs_tokens import BandStatus
from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.serving.ports import ThinkingParser
from streamoe_coordinator.serving.request import AnswerRequest, Prompt
from streamoe_coordinator.serving.scheduler import Scheduler, SchedulerOptions, Ticket
from streamoe_coordinator.serving.stream import AnswerEvent, ContentDelta, Ended, Failed, Progress
from streamoe_coordinator.text import TextTokenizer
from tests.coordinator.fake_band import FakeBand, logits_after

SNAPSHOT_BYTES_A_TOKEN = 10


class FakeState(list[int]):
    """The tokens it has run; held until released. Compared by identity, as states are."""

    is_held = True

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


class FakeSequences(FakeBand):
    """FakeBand for several states: counts them, and refuses one more than there is room for, or one let go."""

    def __init__(self, end_id: int, num_sequences: int = 3, ctx_tokens: int = 400, chunk_tokens: int = 7) -> None:
        super().__init__(end_id, ctx_tokens, chunk_tokens)
        self.num_sequences = num_sequences
        self.held: list[FakeState] = []
        self.together: list[int] = []
        self.num_prefilled = self.num_snapshot_bytes = 0

    def new_state(self) -> Any:
        assert len(self.held) < self.num_sequences, "more states than planned"
        self.held.append(FakeState())
        return self.held[-1]

    def release(self, state: Any) -> None:
        state.is_held = False
        self.held = [other for other in self.held if other is not state]

    def run(
        self, state: Any, inputs: np.ndarray, want: Want, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        assert state.is_held, "a released state was run on"
        assert inputs.dtype == np.int32 and 1 <= len(inputs) <= self.plan.chunk_tokens
        assert len(state) + len(inputs) <= self.plan.ctx_tokens
        self.before_run(self)
        if before_layer is not None:
            self.num_prefilled += len(inputs)
            before_layer(0)
        state.extend(inputs.tolist())
        self.calls.append(len(inputs))
        return logits_after(state, -1 if self.never_ends else self.end_id) if want == "last_logits" else None

    def run_together(self, states: Sequence[Any], tokens: np.ndarray, want: Want) -> np.ndarray | None:
        assert len({id(state) for state in states}) == len(states) == len(tokens)
        assert tokens.dtype == np.int32
        self.together.append(len(states))
        return np.stack([self.run(s, tokens[i : i + 1], want) for i, s in enumerate(states)])  # type: ignore[misc]

    def snapshot(self, state: Any) -> tuple[int, ...]:
        assert state.is_held
        self.num_snapshot_bytes += self.snapshot_bytes(len(state))
        return tuple(state)

    def restore(self, snapshot: tuple[int, ...]) -> Any:
        state = self.new_state()
        state.extend(snapshot)
        return state

    def snapshot_bytes(self, position: int) -> int:
        return SNAPSHOT_BYTES_A_TOKEN * position

    def bands(self) -> Sequence[BandStatus]:
        return [BandStatus("local", 0, 0, 1, 1, 1, plan=self.plan)]


class Client:
    """One request at a scheduler, and what came of it."""

    def __init__(self, scheduler: Scheduler, request: AnswerRequest) -> None:
        self._queue: queue.Queue[AnswerEvent] = queue.Queue()
        self.events: list[AnswerEvent] = []
        self.ticket: Ticket = scheduler.submit(request, self._queue.put)

    def next(self) -> AnswerEvent:
        self.events.append(self._queue.get(timeout=10))
        return self.events[-1]

    def wait_for(self, kind: type) -> AnswerEvent:
        while not isinstance(event := self.next(), kind):
            assert not isinstance(event, Ended | Failed), f"{event} came before any {kind}"
        return event

    def finish(self) -> Client:
        while not (self.events and isinstance(self.events[-1], Ended | Failed)):
            self.next()
        assert self._queue.empty(), "an event came after the last"
        return self

    @property
    def ended(self) -> Ended:
        assert isinstance(self.events[-1], Ended), self.events[-1]
        return self.events[-1]

    @property
    def failed(self) -> Failed:
        assert isinstance(self.events[-1], Failed), self.events[-1]
        return self.events[-1]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ContentDelta))

    @property
    def cached_tokens(self) -> int:
        return next(event.cached_tokens for event in self.events if isinstance(event, Progress))


def request_of(
    prompt: Sequence[int], boundaries: Sequence[int] = (), max_tokens: int = 20, name: str = "r", **more: Any
) -> AnswerRequest:
    params = more.pop("params", SamplingParams(max_tokens=max_tokens))
    return AnswerRequest(name, Prompt(tuple(prompt), tuple(boundaries)), params, ThinkingParser, **more)


@contextmanager
def serving(band: FakeSequences, tokenizer: TextTokenizer, **options: Any) -> Iterator[Scheduler]:
    """A scheduler over a fake band, open."""

    @contextmanager
    def opened() -> Iterator[Any]:
        yield band

    scheduler = Scheduler(opened, tokenizer, SchedulerOptions(**options))
    scheduler.start()
    assert scheduler.wait_until_open(10)
    try:
        yield scheduler
    finally:
        scheduler.close()


def expected_tokens(prompt: Sequence[int], end_id: int, num: int) -> list[int]:
    """What a prompt's answer is, alone."""
    tokens: list[int] = []
    while len(tokens) < num and (token := int(logits_after([*prompt, *tokens], end_id).argmax())) != end_id:
        tokens.append(token)
    return tokens
