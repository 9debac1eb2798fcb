"""A model over several nodes, run as one band is: the chain of its bands in layer order.

Owns the way of a run through the bands, and the figures of it. `generation` cannot tell a Chain from a Band. Each
state may be run from a thread of its own. Refuses to know how nodes were found and chosen, and sampling.
"""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.telemetry import Snapshot
from streamoe_proto.channel_options import FRAME_OVERHEAD_BYTES
from streamoe_proto.messages import EMPTY_PREFIX, Checkpointed, NodeFacts, TopWords

from .band_session import BandSession, Shared
from .budget import Budget
from .chain_options import ChainOptions
from .figures import ChainFigures
from .history import HistoryRoom
from .notices import Notice
from .pipeline import BandAnswer, Pipeline, Wagon
from .ports import Clock, NoRescue, Rescue, Seat
from .run_checks import asked_of_last, check_run
from .seats import Seats
from .splits import BandSplit, split_of
from .standing import Standing, Standings
from .states import ChainState
from .timers import MachineClock
from .words import dense

__all__ = ["Chain", "ChainOptions", "ChainState"]


class Chain:
    """Bands that tile all layers, in order. Use as a context manager, or call close()."""

    def __init__(
        self,
        seats: Sequence[Seat],
        options: ChainOptions | None = None,
        *,
        clock: Clock | None = None,
        rescue: Rescue | None = None,
        notify: Callable[[Notice], None] = lambda _: None,
        new_session: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        layers = [seat.layers for seat in seats]
        assert layers and layers[0][0] == 0 and layers[-1][1] == seats[-1].facts.num_layers - 1
        assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(layers))
        options = options or ChainOptions()
        self.options, self.words_wanted = options, options.words_wanted
        self._figures, self._new_session = ChainFigures(seats), new_session
        self._seats = Seats(seats, lambda band, seat: self._figures.set_facts(band, seat.facts))
        self._standings, self._notify = Standings(layers), notify
        self._shared = Shared(
            self._seats,
            HistoryRoom(options.history_bytes),
            clock or MachineClock(),
            options.timers,
            rescue or NoRescue(),
            self._told,
            options.epoch,
        )
        self._states: weakref.WeakSet[ChainState] = weakref.WeakSet()

    # ---- what it is

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Who serves each band now."""
        return tuple(self._seats)

    @property
    def ctx_tokens(self) -> int:
        """Tokens a sequence may have: the least of all plans."""
        return min(seat.facts.ctx_tokens for seat in self._seats)

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one run: what a frame holds. Nodes cut it further as their plans say."""
        frames = ((seat.facts.max_frame_bytes - FRAME_OVERHEAD_BYTES) // (4 * self._width) for seat in self._seats)
        return min(self.ctx_tokens, *frames)

    @property
    def num_sequences(self) -> int:
        """States that every node has room for."""
        return min(seat.facts.max_sessions for seat in self._seats)

    def prompt_chunk_tokens(self, num_tokens: int) -> int:
        """How many tokens of a prompt to run at once, so that bands overlap but no prompt is cut for nothing."""
        return self._figures.step_tokens(num_tokens, self.chunk_tokens)

    @property
    def history_bytes_used(self) -> int:
        """Memory taken by histories now."""
        return self._shared.room.used_bytes

    @property
    def last_split(self) -> tuple[BandSplit, ...]:
        """Where the last run's time went, band by band."""
        return self._figures.last_split

    @property
    def standings(self) -> tuple[Standing, ...]:
        """How each band stands. Any thread."""
        return self._standings.now()

    # ---- states

    def new_state(self) -> ChainState:
        """An empty sequence, its sessions open on every node. Raises BandLost."""
        return self._open(self._new_session(), (0, EMPTY_PREFIX))

    def adopt_state(self, session: str, position: int, prefix_hash: bytes) -> ChainState:
        """A sequence that the nodes hold under this name, or have on their shelves, after `position` tokens.

        What lies before cannot be run again for a band that loses it. Raises BandLost.
        """
        return self._open(session, (position, prefix_hash))

    def release(self, state: ChainState) -> None:
        """Close a state's sessions. Never blocks."""
        state.release()

    def _open(self, session: str, base: tuple[int, bytes]) -> ChainState:
        bands = [BandSession(session, band, self._shared, *base) for band in range(len(self._seats))]
        state = ChainState(session, bands, base)
        state.words_wanted = self.words_wanted
        state.begin_run(Budget(self._shared.clock, self.options.timers.open_s), None)
        try:
            for band in bands:
                band.open()
        except BaseException:
            state.release()
            self._standings.settle()
            raise
        self._standings.opened()
        self._states.add(state)
        return state

    # ---- running

    def run(
        self, state: ChainState, inputs: np.ndarray, want: Want, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """Run (tokens,) int32, at most chunk_tokens. "nothing" returns while later bands still owe their part, which
        runs beside the next call's. Returns None, (tokens, width) or (vocabulary,) float32.

        before_layer: called with a layer that has begun, about once a second; what it raises ends the state.
        Raises StateLost, ContextFull and UsageError before computing; BandLost. An error ends the state.
        """
        self._check(state, inputs, want)
        final, top_k = asked_of_last(want, state.words_wanted)
        answers: list[BandAnswer] = []
        with self._running([state], before_layer):
            state.pipeline.enter(Wagon(state.bands, state.next_step(inputs), final, top_k))
            output = self._tick(state.pipeline, answers)
            while want != "nothing" and not state.pipeline.is_empty:
                output = self._tick(state.pipeline, answers)
        self._finish(answers, len(inputs), [state])
        return None if want == "nothing" else self._dense(output)

    def run_together(self, states: Sequence[ChainState], tokens: np.ndarray, want: Want) -> np.ndarray | None:
        """One token of each sequence, tokens (states,) int32, one behind the other so that all bands work at once.

        Returns None, or (states, vocabulary) or (states, width) float32. Raises as run; an error ends all the states.
        """
        for state, token in zip(states, tokens, strict=True):
            self._check(state, np.asarray([token], np.int32), want)
        answers: list[BandAnswer] = []
        rows: list[np.ndarray | None] = []
        with self._running(states, None):
            for state in states:
                self._drain(state, answers)
            waiting = deque(
                Wagon(
                    state.bands,
                    state.next_step(tokens[i : i + 1].astype(np.int32)),
                    *asked_of_last(want, state.words_wanted),
                )
                for i, state in enumerate(states)
            )
            line = Pipeline(len(self._seats))
            while waiting or not line.is_empty:
                if waiting:
                    line.enter(waiting.popleft())
                num_before = len(answers)
                output = self._tick(line, answers)
                if any(answer.band == len(self._seats) - 1 for answer in answers[num_before:]):
                    rows.append(self._dense(output))
        self._finish(answers, len(states), states)
        if want == "nothing":
            return None
        made = [row for row in rows if row is not None]
        return np.concatenate(made) if want == "hidden" else np.stack(made)

    def checkpoint(self, state: ChainState, timeout_s: float = 60.0) -> tuple[Checkpointed | None, ...]:
        """Have every node keep a snapshot of a state now; what each kept. Raises StateLost and BandLost."""
        state.check()
        answers: list[BandAnswer] = []
        with self._running([state], None):
            self._drain(state, answers)
        self._finish(answers, 0, [])
        state.checkpoint_position = state.position
        for band in state.bands:
            band.ask_checkpoint()
        return tuple(band.wait_checkpoint(timeout_s) for band in state.bands)

    # ---- figures

    def telemetry(self) -> Snapshot:
        """Counts of all sessions since the chain was made; see BandTotals.snapshot."""
        return self._figures.snapshot()

    def update_facts(self, facts: NodeFacts) -> None:
        """A node told of itself anew: its footprint goes into telemetry."""
        for band, seat in enumerate(self._seats):
            if seat.target.node_id == facts.node_id and seat.facts.boot_id == facts.boot_id:
                self._figures.set_facts(band, facts)

    def close(self) -> None:
        """Close all states. Never blocks."""
        for state in list(self._states):
            state.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- below

    @property
    def _width(self) -> int:
        return self._seats[0].facts.hidden_size

    def _check(self, state: ChainState, inputs: np.ndarray, want: Want) -> None:
        state.check()
        facts = self._seats[0].facts
        check_run(state.position, inputs, want, self.chunk_tokens, self.ctx_tokens, facts.vocab_size)

    @contextmanager
    def _running(self, states: Sequence[ChainState], before_layer: Callable[[int], None] | None) -> Iterator[None]:
        """One budget for all troubles of a run; an error ends its states."""
        budget = Budget(self._shared.clock, self.options.timers.recover_s)
        for state in states:
            state.begin_run(budget, before_layer)
        try:
            yield
        except BaseException:
            for state in states:
                state.release()
            raise
        finally:
            self._standings.settle()
            for state in states:
                state.end_run()

    def _tick(self, pipeline: Pipeline, answers: list[BandAnswer]) -> np.ndarray | TopWords | None:
        done, output = pipeline.tick()
        for answer in done:
            self._standings.answered(self._seats[answer.band].layers, split_of(answer.answer).wire_s)
        answers += done
        return output

    def _told(self, notice: Notice) -> None:
        self._standings.hear(notice)
        self._notify(notice)

    def _drain(self, state: ChainState, answers: list[BandAnswer]) -> None:
        while not state.pipeline.is_empty:
            self._tick(state.pipeline, answers)

    def _dense(self, output: np.ndarray | TopWords | None) -> np.ndarray | None:
        return dense(output, self._seats[0].facts.vocab_size) if isinstance(output, TopWords) else output

    def _finish(self, answers: Sequence[BandAnswer], num_tokens: int, states: Sequence[ChainState]) -> None:
        self._figures.record(answers, num_tokens)
        for state in states:
            self._checkpoint_if_due(state)

    def _checkpoint_if_due(self, state: ChainState) -> None:
        every = self.options.checkpoint_tokens
        if every and state.pipeline.is_empty and state.position - state.checkpoint_position >= every:
            state.checkpoint_position = state.position
            for band in state.bands:
                band.ask_checkpoint()
