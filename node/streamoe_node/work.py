"""Carrying out one queued item on the compute thread, and telling of its progress.

Owns the calls into the band and the shelf. Refuses to know who is attached and what is queued next.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from streamoe_engine.errors import ReadFailed, StreamoeError
from streamoe_proto.messages import Checkpointed, Failed, FailureCode, FromNode, Progress, Result, Timing

from .limits import NodeLimits
from .ports import BandCounts, BandPort, Clock, ShelfEntry, SnapshotShelf
from .session import FreeItem, Item, Progressing, ResetItem, RunItem, SaveItem, Session, mark_of
from .steps import run_step

_EWMA_SHARE = 0.1


class StepStopped(Exception):
    """Raised before a layer of a cancelled step; the state is lost."""


@dataclass(frozen=True, slots=True)
class Done:
    """An item is done; answer: what to tell, None for nothing."""

    answer: FromNode | None = None


class Worker:
    """Runs items. `lock` guards the sessions' bookkeeping; it is not held while the band computes."""

    def __init__(
        self, band: BandPort, clock: Clock, limits: NodeLimits, shelf: SnapshotShelf, lock: threading.Condition
    ) -> None:
        self._band, self._clock, self._limits, self._shelf, self._lock = band, clock, limits, shelf, lock
        self.token_s = 0.0

    def do(self, session: Session, item: Item) -> Done:
        """Carry out an item. StreamoeErrors become a Failed; others leave, and are our own mistakes."""
        if isinstance(item, RunItem):
            return self._run(session, item)
        if isinstance(item, ResetItem):
            return self._reset(session, item)
        if isinstance(item, SaveItem):
            return self._save(session, item)
        assert isinstance(item, FreeItem)
        self._release(session)
        if item.is_over:
            self._shelf.drop(session.name)
        return Done()

    def tell_progress(self, session: Session, now_s: float) -> bool:
        """Send Progress where it is due and the step has moved lately; whether one runs that has moved lately.

        Under the lock; any thread.
        """
        item, told = session.running, session.progressing
        if not isinstance(item, RunItem) or told is None:
            return False
        read_bytes = self._band.counts().read_bytes
        if read_bytes != told.read_bytes:
            told.read_bytes, told.changed_s = read_bytes, now_s
        is_moving = now_s - told.changed_s < self._limits.stuck_s
        if is_moving and now_s - told.told_s >= self._limits.progress_s:
            told.told_s = now_s
            session.send(Progress(item.step.seq, told.layer, read_bytes))
        return is_moving

    def _run(self, session: Session, item: RunItem) -> Done:
        step, start_s, before = item.step, self._clock.now_s(), self._band.counts()
        if item.is_cancelled:
            return Done(Failed("cancelled", f"step {step.seq} was cancelled", seq=step.seq, retryable=True))
        if item.first is not None:
            failed = self._reset(session, item.first, step.seq).answer
            if failed is not None:
                return Done(failed)
        assert session.state is not None, "a step is taken only where the state is, or will be"
        with self._lock:
            session.progressing = Progressing(-1, before.read_bytes, start_s, start_s)

        def before_layer(layer: int) -> None:
            if item.is_cancelled:
                raise StepStopped
            now_s = self._clock.now_s()
            with self._lock:
                if session.progressing is not None:
                    session.progressing.layer, session.progressing.changed_s = layer, now_s
                    self.tell_progress(session, now_s)

        try:
            output = run_step(self._band, session.state, step, before_layer)
        except StepStopped:
            self._release(session)
            return Done(Failed("cancelled", f"step {step.seq} was cancelled while it ran", seq=step.seq))
        except StreamoeError as error:
            self._release(session)
            return Done(Failed(_code(error), error.message, error.next_step, step.seq))
        timing = _timing(item.queued_s, start_s, self._clock.now_s(), before, self._band.counts())
        result = Result(step.seq, step.position + len(step.inputs), output, timing)
        if len(step.inputs) == 1:
            fresh_s = timing.compute_s
            self.token_s = fresh_s if not self.token_s else self.token_s + _EWMA_SHARE * (fresh_s - self.token_s)
        with self._lock:
            session.commit(step, result)
        return Done(result)

    def _reset(self, session: Session, item: ResetItem, seq: int = 0) -> Done:
        self._release(session)  # before the new one comes: the plan has room for so many
        entry = item.entry
        try:
            state = self._band.new_state() if entry is None else self._band.restore(self._shelf.load(entry))
        except StreamoeError as error:
            if entry is not None:
                self._shelf.discard(entry)
            return Done(Failed("need_replay", error.message, error.next_step, seq))
        with self._lock:
            session.state = state
            session.now = mark_of(entry)
        return Done()

    def _save(self, session: Session, item: SaveItem) -> Done:
        if session.state is None or session.now.position == 0:
            nothing = Failed("bad_frame", "there is nothing to keep yet", retryable=True)
            return Done(nothing if item.is_asked else None)
        try:
            entry = self._saved(session)
        except StreamoeError as error:
            refusal = Failed("no_room", error.message, error.next_step, retryable=True)
            return Done(refusal if item.is_asked else None)
        return Done(Checkpointed(entry.position, entry.snapshot_id, entry.num_bytes))

    def _saved(self, session: Session) -> ShelfEntry:
        mark = session.now
        for entry in self._shelf.entries(session.name):
            if (entry.position, entry.prefix_hash) == (mark.position, mark.prefix_hash):
                return entry
        return self._shelf.save(session.name, mark.position, mark.prefix_hash, self._band.snapshot(session.state))

    def _release(self, session: Session) -> None:
        state = session.state
        with self._lock:
            session.lose()
        if state is not None:
            self._band.release(state)


def _timing(queued_s: float, start_s: float, end_s: float, before: BandCounts, after: BandCounts) -> Timing:
    return Timing(
        queue_s=start_s - queued_s,
        compute_s=end_s - start_s,
        wait_s=after.wait_s - before.wait_s,
        read_bytes=after.read_bytes - before.read_bytes,
        picks=after.picks - before.picks,
        hits=after.hits - before.hits,
    )


def _code(error: StreamoeError) -> FailureCode:
    return "read_failed" if isinstance(error, ReadFailed) else "internal"
