"""The node's sessions and whose turn it is: what the compute thread takes its work from.

Owns the lock, the sessions, the streams that wait for one, and the order of turns. Every method but `take` is called
under the lock. Refuses to know frames and what work means.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from streamoe_proto.messages import Failed, FailureCode, Open, Progress

from .session import FreeItem, Item, Link, RunItem, SaveItem, Session


class Board:
    """Sessions by name, and the queue of turns."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.sessions: dict[str, Session] = {}
        # Streams whose Ready is held back, by session.
        self.waiting: dict[str, tuple[Link, Open]] = {}
        self._order: deque[Session] = deque()

    def take(self, timeout_s: float) -> tuple[Session, Item] | None:
        """The next piece of work, marked as running; None when none came within timeout_s of real time."""
        deadline_s = time.monotonic() + timeout_s
        with self.changed:
            while True:
                while self._order:
                    session = self._order.popleft()
                    if session.queue:  # what was queued may have been dropped
                        session.running = session.queue.popleft()
                        return session, session.running
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self.changed.wait(left_s):
                    return None

    def put_back(self, session: Session) -> None:
        """A session's work is done; its next turn comes after the others'."""
        session.running = session.progressing = None
        if session.queue:
            self._order.append(session)
        self.changed.notify_all()

    def push(self, session: Session, item: Item) -> None:
        """Queue work."""
        session.push(item)
        if session.running is None and session not in self._order:
            self._order.append(session)
        self.changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether anything runs or is queued."""
        return any(not session.is_idle for session in self.sessions.values())

    def tell_waiting(self) -> None:
        """A step runs and moves: those that wait behind it are as alive, though their layer is none yet."""
        for session in self.sessions.values():
            pending = session.pending()
            if pending and not isinstance(session.running, RunItem):
                session.send(Progress(pending[0].step.seq, -1, 0))

    def retire(self, session: Session) -> None:
        """Keep a snapshot of the session, then free it."""
        if not session.is_closing:
            session.is_closing = True
            self.push(session, SaveItem(is_asked=False))
            self.push(session, FreeItem(is_over=False))

    def end_over(self, session: Session) -> None:
        """The session is over: stop its step at the next layer, free it, forget its snapshots."""
        session.drop_steps()
        if isinstance(session.running, RunItem):
            session.running.is_cancelled = True
        session.queue.clear()
        session.is_closing = True
        self.push(session, FreeItem(is_over=True))

    def fail_steps(self, session: Session, code: FailureCode, message: str, from_seq: int = 0) -> None:
        """Forget the session's steps that have not begun, and say so; the state stays as it is."""
        for item in session.drop_steps(from_seq):
            session.send(Failed(code, message, seq=item.step.seq, from_pos=session.now.position, retryable=True))


def end_link(link: Link, last: Failed | None = None) -> None:
    """The core is done with a stream; tell why."""
    link.is_live = False
    if last is not None:
        link.send(last)
    link.end()
