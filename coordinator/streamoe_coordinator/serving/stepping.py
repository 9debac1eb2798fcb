"""One step after another in a band: a chunk of one prompt, or one token of every answer.

Owns the answers that run and their states. All of it happens on the compute thread. Refuses to know who waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.errors import StreamoeError

from ..events import Timings
from ..interrupt import StopFlag
from ..runs_tokens import RunsSequences, prompt_chunk_tokens
from ..text import TextTokenizer
from .meter import Meter
from .prefix import PrefixStore
from .request import AnswerRequest
from .running import Running
from .stream import AnswerEvent, Ended, Failed, Progress, Tokens
from .turns import TimeShare

_NO_TIME = Timings(None, 0.0, 0.0, 0)


class TicketPort(Protocol):
    """What stepping needs of a scheduler's ticket."""

    request: AnswerRequest
    stop: StopFlag

    def deliver(self, event: AnswerEvent, /) -> None:
        """Take an event; returns at once."""
        ...


class _Left(BaseException):
    """Ends a chunk between two layers: its client has gone."""


@dataclass(slots=True, eq=False)
class _Seat:
    ticket: TicketPort
    answer: Running | None = None  # None until its prompt begins
    progress: Progress | None = None

    @property
    def is_reading(self) -> bool:
        return self.answer is None or self.answer.is_reading


class Stepping:
    """The answers that run in one band. checkpoint_tokens: see Running.next_chunk."""

    checkpoint_tokens = 64

    def __init__(self, band: RunsSequences, tokenizer: TextTokenizer, checkpoint_bytes: int, meter: Meter) -> None:
        self._band, self._tokenizer, self._meter = band, tokenizer, meter
        self._prefixes = PrefixStore(band, checkpoint_bytes)
        self._seats: list[_Seat] = []  # readers take turns from the front
        self._share = TimeShare()

    @property
    def num_running(self) -> int:
        """Answers admitted and not over."""
        return len(self._seats)

    @property
    def prefills(self) -> list[tuple[str, Progress]]:
        """Prompts being read, by request id."""
        seats = [seat for seat in list(self._seats) if seat.is_reading]
        return [(seat.ticket.request.id, seat.progress) for seat in seats if seat.progress is not None]

    @property
    def checkpoints(self) -> tuple[int, int]:
        """How many copies of states are kept, and their bytes."""
        return self._prefixes.num_checkpoints, self._prefixes.checkpoint_bytes

    def admit(self, ticket: TicketPort) -> None:
        """Give a request one of the places."""
        self._seats.append(_Seat(ticket))

    def cancel_unborn(self, ticket: TicketPort) -> None:
        """End a request that has no place."""
        self._meter.never_began(is_cancelled=True)
        ticket.deliver(self._cancelled_early(ticket.request))

    def fail_unborn(self, ticket: TicketPort, error: StreamoeError) -> None:
        """End a request that has no place, with an error."""
        self._meter.never_began(is_failed=True)
        ticket.deliver(Failed(error))

    def fail_all(self, error: StreamoeError) -> None:
        """End every answer now, with an error, and forget every state."""
        for seat in list(self._seats):
            self._fail(seat, error)
        self._prefixes.clear()

    def step(self) -> None:
        """One chunk of a prompt, or one token of every answer."""
        for seat in [seat for seat in self._seats if seat.ticket.stop.is_set]:
            self._leave(seat)
        readers = [seat for seat in self._seats if seat.is_reading]
        writers = [seat for seat in self._seats if not seat.is_reading]
        on_answers = self._share.prefers_answers(has_prompts=bool(readers), has_answers=bool(writers))
        begin_s = time.perf_counter()
        if on_answers:
            self._decode(writers)
        elif readers:
            self._read(next(seat for seat in readers if not self._waits_for_another(seat)))
        self._share.spent(time.perf_counter() - begin_s, on_answers=on_answers)

    # ---- a chunk of one prompt

    def _read(self, seat: _Seat) -> None:
        # The next chunk is another's. In one assignment: who counts from another thread never sees one less.
        self._seats = [*(other for other in self._seats if other is not seat), seat]
        try:
            answer = seat.answer or self._begin(seat)
            self._run_chunk(seat, answer)
        except _Left:
            self._leave(seat, is_lost=True)
        except StreamoeError as error:
            self._fail(seat, error)

    def _begin(self, seat: _Seat) -> Running:
        request = seat.ticket.request
        claim = self._prefixes.claim(request.prompt.tokens)
        try:
            seat.answer = Running(
                request,
                claim.state,
                claim.position,
                tokenizer=self._tokenizer,
                ctx_tokens=self._band.ctx_tokens,
                meter=self._meter,
                telemetry=self._band.telemetry,
            )
        except BaseException:
            self._prefixes.drop(claim.state)
            raise
        self._tell_progress(seat, seat.answer)
        return seat.answer

    def _run_chunk(self, seat: _Seat, answer: Running) -> None:
        ahead = answer.boundaries_ahead(self.checkpoint_tokens)
        most = prompt_chunk_tokens(self._band, len(answer.request.prompt.tokens))
        chunk = answer.next_chunk(most, self.checkpoint_tokens)
        is_last = len(answer.tokens) + len(chunk) == len(answer.request.prompt.tokens)

        def stop_when_left(_layer: int) -> None:
            if seat.ticket.stop.is_set:
                raise _Left

        inputs = np.asarray(chunk, dtype=np.int32)
        want: Want = "last_logits" if is_last else "nothing"
        logits = self._band.run(answer.state, inputs, want, before_layer=stop_when_left)
        answer.tokens += chunk
        if len(answer.tokens) in ahead:
            self._prefixes.checkpoint(answer.tokens, answer.state)
        self._tell_progress(seat, answer)
        if logits is not None:
            self._choose(seat, answer, logits)

    def _tell_progress(self, seat: _Seat, answer: Running) -> None:
        seat.progress = answer.progress()
        seat.ticket.deliver(seat.progress)

    def _waits_for_another(self, seat: _Seat) -> bool:
        # Two prompts that begin the same: the second waits for the first one's checkpoint instead of reading it too.
        if seat.answer is not None:
            return False
        tokens = seat.ticket.request.prompt.tokens
        found = self._prefixes.longest(tokens)
        for other in self._seats:
            if other.answer is None or not other.answer.is_reading:
                continue
            for boundary in other.answer.boundaries_ahead(self.checkpoint_tokens):
                is_shared = (
                    boundary < len(tokens) and other.ticket.request.prompt.tokens[:boundary] == tokens[:boundary]
                )
                if is_shared and boundary - found >= self.checkpoint_tokens and self._prefixes.has_room(boundary):
                    return True
        return False

    # ---- one token of every answer

    def _decode(self, seats: Sequence[_Seat]) -> None:
        pairs = [(seat, seat.answer) for seat in seats if seat.answer is not None]
        tokens = np.asarray([answer.next_token for _, answer in pairs], dtype=np.int32)
        try:
            logits = self._run_tokens([answer for _, answer in pairs], tokens)
        except StreamoeError as error:
            for seat, _ in pairs:
                self._fail(seat, error)
            return
        for (seat, answer), row in zip(pairs, logits, strict=True):
            assert answer.next_token is not None
            answer.tokens.append(answer.next_token)
            try:
                self._choose(seat, answer, row)
            except StreamoeError as error:
                self._fail(seat, error)

    def _run_tokens(self, answers: Sequence[Running], tokens: np.ndarray) -> np.ndarray:
        if len(answers) == 1:
            logits = self._band.run(answers[0].state, tokens, "last_logits")
            assert logits is not None
            return logits[None]
        logits = self._band.run_together([answer.state for answer in answers], tokens, "last_logits")
        assert logits is not None
        return logits

    # ---- ends

    def _choose(self, seat: _Seat, answer: Running, logits: np.ndarray) -> None:
        events = answer.choose(logits)
        if events and isinstance(events[-1], Ended):
            self._free(seat)
        for event in events:
            seat.ticket.deliver(event)

    def _leave(self, seat: _Seat, *, is_lost: bool = False) -> None:
        # Counted before the place is free: who sees nothing run sees every end counted.
        answer, events = seat.answer, list[AnswerEvent]()
        if answer is None:
            self._meter.never_began(is_cancelled=True)
            events.append(self._cancelled_early(seat.ticket.request))
        else:
            events += answer.end("cancelled")
        self._free(seat, is_lost=is_lost)
        for event in events:
            seat.ticket.deliver(event)

    def _fail(self, seat: _Seat, error: StreamoeError) -> None:
        if seat.answer is None:
            self._meter.never_began(is_failed=True)
        else:
            seat.answer.failed()
        self._free(seat, is_lost=True)
        seat.ticket.deliver(Failed(error))

    def _free(self, seat: _Seat, *, is_lost: bool = False) -> None:
        self._seats.remove(seat)
        if seat.answer is None:
            return
        if is_lost:
            self._prefixes.drop(seat.answer.state)
        else:
            self._prefixes.park(seat.answer.tokens, seat.answer.state)

    def _cancelled_early(self, request: AnswerRequest) -> Ended:
        counts = self._band.telemetry()
        tokens = Tokens(len(request.prompt.tokens), 0, 0, 0)
        return Ended("cancelled", None, (), tokens, _NO_TIME, counts.since(counts))
