"""Answers for many, from one band: who waits, and the thread that computes.

Owns the compute thread, which opens the band, makes every call to it and closes it, and the line of waiting requests.
Refuses to know HTTP and event loops: events go to a function the caller gives, called on the compute thread, which
must return at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from streamoe_engine.errors import ContextFull, StreamoeError

from ..interrupt import StopFlag
from ..runs_tokens import RunsSequences
from ..text import TextTokenizer
from .errors import Draining, EngineStopped, NotReady, QueueFull
from .meter import Meter
from .request import AnswerRequest
from .stepping import Stepping
from .stream import AnswerEvent, Progress
from .turns import FairQueue

Status = Literal["loading", "ok", "draining", "failed"]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """max_waiting: requests in line beyond those that run. checkpoint_bytes: what copies of states may take together.
    checkpoint_tokens: what a copy must spare a later prompt to be worth its extra step.
    """

    max_waiting: int = 64
    checkpoint_bytes: int = 0
    checkpoint_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one moment: answers in the making, and requests in line. One that moves up is in one of the two."""

    num_running: int
    num_waiting: int

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do; then every end of before is counted by the meter."""
        return self.num_running + self.num_waiting == 0


class Ticket:
    """One request on its way. `cancel` may be called from any thread, at any time, more than once."""

    def __init__(
        self, request: AnswerRequest, deliver: Callable[[AnswerEvent], None], wake: Callable[[], None]
    ) -> None:
        self.request, self.deliver, self._wake = request, deliver, wake
        self.stop = StopFlag()

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends within one token, and its place is free."""
        self.stop.request()
        self._wake()


class Scheduler:
    """Runs answers in a band that it opens. Begin with `start`, end with `close`."""

    def __init__(
        self,
        open_band: Callable[[], AbstractContextManager[RunsSequences]],
        tokenizer: TextTokenizer,
        options: SchedulerOptions,
    ) -> None:
        self._open_band, self._tokenizer, self._options = open_band, tokenizer, options
        self._changed = threading.Condition()
        self._waiting: FairQueue[Ticket] = FairQueue(lambda ticket: ticket.request.client)
        self._is_ending = False
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._stepping: Stepping | None = None
        self.status: Status = "loading"
        self.error: StreamoeError | None = None
        self.band: RunsSequences | None = None
        self.meter = Meter()

    # ---- any thread

    def start(self) -> None:
        """Begin to open the band."""
        self._thread.start()

    def wait_until_open(self, timeout_s: float | None = None) -> bool:
        """Wait for the band; False after timeout_s. Raises what opening it raised."""
        if not self._settled.wait(timeout_s):
            return False
        if self.error is not None:
            raise self.error
        return True

    def submit(self, request: AnswerRequest, deliver: Callable[[AnswerEvent], None]) -> Ticket:
        """Put a request in line; its events go to `deliver`, the last is Ended or Failed.

        Raises ContextFull with both numbers, QueueFull, NotReady, Draining, EngineStopped; then nothing is delivered.
        """
        with self._changed:
            band = self._checked_band()
            needed, most = len(request.prompt.tokens) + 1, band.ctx_tokens
            if needed > most:
                raise ContextFull(needed, most)
            if len(self._waiting) >= self._options.max_waiting + self._num_free(band):
                raise QueueFull(
                    f"{len(self._waiting)} requests wait, and {band.num_sequences} run",
                    retry_after_s=self._retry_after_s(band),
                )
            ticket = Ticket(request, deliver, self._wake)
            self._waiting.push(ticket)
            self._changed.notify_all()
            return ticket

    def close(self, grace_s: float = 0.0) -> None:
        """Take no more requests, give those in line and running grace_s to end, cancel the rest, close the band."""
        with self._changed:
            self.status = "draining" if self.status in ("ok", "loading") else self.status
            self._changed.wait_for(lambda: self.load.is_idle, timeout=grace_s)
            self._is_ending = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def load(self) -> Load:
        """Who runs and who waits."""
        with self._changed:
            return Load(self._num_running, len(self._waiting))

    @property
    def prefills(self) -> list[tuple[str, Progress]]:
        """Prompts being read, by request id."""
        return self._stepping.prefills if self._stepping is not None else []

    @property
    def checkpoints(self) -> tuple[int, int]:
        """How many copies of states are kept, and their bytes."""
        return self._stepping.checkpoints if self._stepping is not None else (0, 0)

    def _checked_band(self) -> RunsSequences:
        if self.status == "failed":
            assert self.error is not None
            raise EngineStopped(f"the model cannot be used: {self.error.message}", self.error.next_step)
        if self.status == "draining":
            raise Draining("the server is ending", "try again when it is back")
        if self.band is None:
            raise NotReady("the model is being opened", "try again in a moment; GET /health tells when")
        return self.band

    def _num_free(self, band: RunsSequences) -> int:
        return max(0, band.num_sequences - self._num_running)

    @property
    def _num_running(self) -> int:
        return self._stepping.num_running if self._stepping is not None else 0

    def _retry_after_s(self, band: RunsSequences) -> int:
        return min(60, max(1, math.ceil(self.meter.mean_answer_s / band.num_sequences)))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # ---- the compute thread

    def _run(self) -> None:
        try:
            with self._open_band() as band:
                self._serve(band)
        except StreamoeError as error:  # opening or closing: serving keeps its own
            self._fail(error)
        except BaseException as error:
            self._fail(EngineStopped(f"the compute thread ended: {error!r}", "start the server again, and report this"))
            raise
        finally:
            self._settled.set()

    def _serve(self, band: RunsSequences) -> None:
        self._stepping = Stepping(band, self._tokenizer, self._options.checkpoint_bytes, self.meter)
        self._stepping.checkpoint_tokens = self._options.checkpoint_tokens
        with self._changed:
            self.band = band
            self.status = "ok" if self.status == "loading" else self.status
        self._settled.set()
        while self._next_tickets():
            self._stepping.step()

    def _next_tickets(self) -> bool:
        # Admits who may run and waits while there is nothing to do; False when the server ends.
        assert self._stepping is not None and self.band is not None
        with self._changed:
            while True:
                for ticket in [ticket for ticket in self._waiting if ticket.stop.is_set]:
                    self._waiting.remove(ticket)
                    self._stepping.cancel_unborn(ticket)
                if self._is_ending:
                    self._end_all(Draining("the server ended before this answer did", "ask again when it is back"))
                    return False
                while len(self._waiting) and self._stepping.num_running < self.band.num_sequences:
                    self._stepping.admit(self._waiting.pop())
                if self._stepping.num_running:
                    return True
                self._changed.notify_all()  # close() may wait for the last to end
                self._changed.wait()

    def _fail(self, error: StreamoeError) -> None:
        with self._changed:
            self.status, self.error = "failed", error
            self._end_all(error)

    def _end_all(self, error: StreamoeError) -> None:
        if self._stepping is not None:  # without it nobody was let in
            self._stepping.fail_all(error)
            while len(self._waiting):
                self._stepping.fail_unborn(self._waiting.pop(), error)
        self._changed.notify_all()
