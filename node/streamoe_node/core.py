"""A node's sessions, without sockets: frames in, frames out, and one queue of work for the thread that computes.

Owns what a frame does to a session, and what the end of a piece of work does. Frames may come from any thread and
never compute; `run_next` runs on the one thread that opened the band. Used by the real node and by the simulation.
Refuses to know gRPC, and what a band computes.

A step's Result or Failed gives its credit back; Credit frames only raise what Ready granted, and none is sent now.
Ready is held back while an older coordinator's step still runs, or while a state must be freed to make room.
"""

from __future__ import annotations

from collections.abc import Callable

from streamoe_proto.messages import (
    Cancel,
    Checkpoint,
    Close,
    Failed,
    FromNode,
    NodeFacts,
    NodeState,
    Open,
    Result,
    Step,
    ToNode,
    Trim,
)

from .accept import Take, Wait, judge, restart_position
from .admission import DRAINING, Admission
from .board import Board, end_link
from .limits import NodeLimits
from .ports import BandPort, Clock, SnapshotShelf
from .session import FreeItem, Item, Link, ResetItem, RunItem, SaveItem, Session
from .work import Done, Worker

_BROKEN_S = 30.0


class Attachment:
    """A coordinator's stream to one session. receive and detach may be called from any thread."""

    def __init__(self, core: NodeCore, link: Link) -> None:
        self._core, self._link = core, link

    @property
    def is_live(self) -> bool:
        """False once the core is done with the stream: closed, fenced, refused or detached."""
        return self._link.is_live

    def receive(self, frame: ToNode) -> None:
        """Take a frame; the answers come through `send`."""
        self._core.receive(self._link, frame)

    def detach(self) -> None:
        """The stream is gone. The session stays, for the same coordinator or another to come back to."""
        self._core.detach(self._link)


class NodeCore:
    """All sessions of one node. The band is touched by run_next only.

    facts: what the node is; its state must be this core's `state()` once the band is open.
    """

    def __init__(
        self,
        facts: Callable[[], NodeFacts],
        band: BandPort,
        clock: Clock,
        limits: NodeLimits,
        shelf: SnapshotShelf,
    ) -> None:
        self._band, self._clock, self._limits, self._shelf = band, clock, limits, shelf
        self._board = Board()
        self._changed = self._board.changed
        self._admission = Admission(self._board, facts, clock, limits, shelf)
        self._worker = Worker(band, clock, limits, shelf, self._changed)
        self._is_draining = False
        self._broken_since_s: float | None = None

    def state(self) -> NodeState:
        """ready, busy, draining, or degraded (its disk failed lately: no new sessions)."""
        with self._changed:
            if self._is_draining:
                return "draining"
            broken_s = self._broken_since_s
            if broken_s is not None and self._clock.now_s() - broken_s < _BROKEN_S:
                return "degraded"
            return "busy" if self._board.is_busy else "ready"

    @property
    def token_s(self) -> float:
        """Seconds that a step of one token computes, lately; 0 until one has."""
        return self._worker.token_s

    @property
    def is_stuck(self) -> bool:
        """Whether a step runs and has shown no sign of work for long."""
        now_s = self._clock.now_s()
        with self._changed:
            running = [session.progressing for session in self._board.sessions.values() if session.progressing]
            return any(now_s - told.changed_s >= self._limits.stuck_s for told in running)

    def sessions(self) -> tuple[tuple[str, int, int, bool], ...]:
        """(session, epoch, position, whether a coordinator is attached) of each."""
        with self._changed:
            held = self._board.sessions.values()
            return tuple((session.name, session.epoch, session.now.position, not session.is_orphan) for session in held)

    @property
    def is_drained(self) -> bool:
        """Draining, and nothing is left to save."""
        with self._changed:
            return self._is_draining and not self._board.sessions

    def attach(
        self, open_: Open, send: Callable[[FromNode], None], end: Callable[[], None] = lambda: None
    ) -> Attachment:
        """Open or resume a session. Sends Ready, perhaps later, or Failed; end: the core is done with the stream.

        send and end are called under the core's lock: they must only queue.
        """
        link = Link(open_.session, open_.epoch, send, end)
        with self._changed:
            if self._is_draining:
                end_link(link, DRAINING)
            else:
                self._admission.request(link, open_)
        return Attachment(self, link)

    def detach(self, link: Link) -> None:
        """As Attachment.detach."""
        with self._changed:
            link.is_live = False
            self._admission.forget(link)

    def drain(self) -> None:
        """Refuse what is new, finish the running step, keep each session's snapshot, free it. See is_drained."""
        with self._changed:
            self._is_draining = True
            for link, _ in list(self._board.waiting.values()):
                end_link(link, DRAINING)
            self._board.waiting.clear()
            for session in self._board.sessions.values():
                self._board.fail_steps(session, DRAINING.code, DRAINING.message)
                self._board.retire(session)
            self._changed.notify_all()

    def tick(self) -> None:
        """Timers: signs of life of a running step; sessions left too long. Call about once a second."""
        now_s = self._clock.now_s()
        with self._changed:
            sessions = list(self._board.sessions.values())
            if any([self._worker.tell_progress(session, now_s) for session in sessions]):
                self._board.tell_waiting()
            for session in sessions:
                if session.is_orphan and now_s - session.orphan_since_s >= self._limits.orphan_ttl_s:
                    self._board.retire(session)

    def run_next(self, timeout_s: float = 0.0) -> bool:
        """Run one queued piece of work on this thread; False when none came within timeout_s of real time.

        Sessions take turns. Errors of a step are its session's; others are our own mistakes, and leave this function
        after the session was told.
        """
        taken = self._board.take(timeout_s)
        if taken is None:
            return False
        session, item = taken
        try:
            done = self._worker.do(session, item)
        except BaseException:
            failed = Failed("internal", "the node met an error of its own", "see its log", _seq(item))
            with self._changed:
                session.lose()
                self._settle(session, item, Done(failed))
            raise
        with self._changed:
            self._settle(session, item, done)
        return True

    def receive(self, link: Link, frame: ToNode) -> None:
        """As Attachment.receive."""
        with self._changed:
            session = self._board.sessions.get(link.session_name)
            if not link.is_live:
                link.send(Failed("fenced", f"epoch {link.epoch}'s stream is over", "open it anew", _seq(frame)))
            elif session is None or session.link is not link:
                link.send(Failed("bad_frame", "Ready has not been sent yet", "", _seq(frame), retryable=True))
            elif session.is_closing:
                link.send(Failed("draining", DRAINING.message, DRAINING.next_step, _seq(frame), retryable=True))
            else:
                self._handle(session, frame)

    def _handle(self, session: Session, frame: ToNode) -> None:
        if isinstance(frame, Step):
            self._take_step(session, frame)
        elif isinstance(frame, Trim):
            self._trim(session, frame.position)
        elif isinstance(frame, Checkpoint):
            self._board.push(session, SaveItem(is_asked=True))
        elif isinstance(frame, Cancel):
            self._cancel(session, frame.seq)
        elif isinstance(frame, Close):
            link, session.link = session.link, None
            self._board.end_over(session)
            if link is not None:
                end_link(link)
        else:
            session.send(Failed("bad_frame", "the session is open already", retryable=True))

    def _take_step(self, session: Session, step: Step) -> None:
        verdict = judge(step, session, self._band, self._limits, self._shelf.entries(session.name))
        if isinstance(verdict, Result | Failed):
            session.send(verdict)
        elif isinstance(verdict, Take):
            self._board.push(session, RunItem(step, self._clock.now_s(), verdict.first))
        else:
            assert isinstance(verdict, Wait)

    def _trim(self, session: Session, position: int) -> None:
        entries = self._shelf.entries(session.name)
        exact = next((entry for entry in entries if entry.position == position), None)
        if session.tail.is_held and session.tail.position == position:
            return
        if position == 0 or exact is not None:
            self._board.push(session, ResetItem(exact if position else None))
            return
        message, from_pos = f"a state cannot go back to {position} tokens", restart_position(entries, position)
        session.send(Failed("need_replay", message, from_pos=from_pos, retryable=True))

    def _cancel(self, session: Session, seq: int) -> None:
        running = session.running
        if isinstance(running, RunItem) and running.step.seq == seq:
            running.is_cancelled = True
        if any(item.step.seq == seq for item in session.pending()):
            self._board.fail_steps(session, "cancelled", f"step {seq} was cancelled", from_seq=seq)

    def _settle(self, session: Session, item: Item, done: Done) -> None:
        answer = done.answer
        if isinstance(answer, Failed) and not answer.retryable:
            self._tell_lost(session, answer, item)
        elif answer is not None:
            session.send(answer)
        if isinstance(answer, Failed) and answer.code == "read_failed":
            self._broken_since_s = self._clock.now_s()
        elif isinstance(answer, Result):
            self._broken_since_s = None
        self._board.put_back(session)
        if isinstance(item, FreeItem):
            self._board.sessions.pop(session.name)
            if session.link is not None:
                end_link(session.link, DRAINING)
        self._admission.admit_waiting()

    def _tell_lost(self, session: Session, failed: Failed, item: Item) -> None:
        """The state is gone: say from where the tokens are needed, also to the steps that waited behind."""
        at = item.step.position if isinstance(item, RunItem) else session.tail.position
        from_pos = restart_position(self._shelf.entries(session.name), at + 1)
        session.running = None
        dropped = session.drop_steps()
        session.send(Failed(failed.code, failed.message, failed.next_step, failed.seq, from_pos))
        for late in dropped:
            message = f"a step before it was not done: {failed.message}"
            session.send(Failed("need_replay", message, "", late.step.seq, from_pos, retryable=True))


def _seq(thing: object) -> int:
    if isinstance(thing, RunItem):
        return thing.step.seq
    return thing.seq if isinstance(thing, Step | Cancel) else 0
