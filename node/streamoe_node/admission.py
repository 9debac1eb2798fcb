"""Who may have a session: refusals, epochs, and room for one more state.

Owns the rules of opening. Called under the board's lock. Refuses to know steps.
"""

from __future__ import annotations

from collections.abc import Callable

from streamoe_proto.messages import EMPTY_PREFIX, Failed, NodeFacts, Open, Ready

from .board import Board, end_link
from .limits import NodeLimits
from .ports import Clock, SnapshotShelf
from .session import Link, Mark, Session

DRAINING = Failed("draining", "this node is shutting down", "use another node that has these layers", retryable=True)


class Admission:
    """Opens and resumes sessions on a board."""

    def __init__(
        self, board: Board, facts: Callable[[], NodeFacts], clock: Clock, limits: NodeLimits, shelf: SnapshotShelf
    ) -> None:
        self._board, self._facts, self._clock = board, facts, clock
        self._limits, self._shelf = limits, shelf

    def request(self, link: Link, open_: Open) -> None:
        """A stream asks for a session: refuse it, or cut off whoever had it and let it wait its turn."""
        refusal = self._refusal(open_)
        if refusal is not None:
            end_link(link, refusal)
            return
        self._fence(open_)
        self._board.waiting[open_.session] = link, open_
        self.admit_waiting()

    def forget(self, link: Link) -> None:
        """A stream is gone; its session, if it had one, is without a coordinator from now."""
        board = self._board
        if board.waiting.get(link.session_name, (None,))[0] is link:
            del board.waiting[link.session_name]
        session = board.sessions.get(link.session_name)
        if session is not None and session.link is link:
            session.link, session.orphan_since_s = None, self._clock.now_s()
        self.admit_waiting()

    def admit_waiting(self) -> None:
        """Open what can be opened now. Call after anything that may have made it so."""
        for name, (link, open_) in list(self._board.waiting.items()):
            session = self._board.sessions.get(name)
            if session is None and not self._has_room(link):
                continue
            if session is not None and (session.is_closing or (session.epoch < link.epoch and session.running)):
                continue  # an older coordinator's step must end first: only then is it known where the state is
            del self._board.waiting[name]
            self._open(session, link, open_)

    def _open(self, session: Session | None, link: Link, open_: Open) -> None:
        if session is None:
            session = self._board.sessions[open_.session] = Session(open_.session, open_.epoch)
        elif session.epoch < link.epoch:
            session.begin_epoch(link.epoch)
        session.link = link
        mark = session.now if session.now.is_held else self._snapshot_for(open_)
        limits = self._limits
        link.send(Ready(mark.position, mark.prefix_hash, session.last_seq, limits.credits, limits.max_frame_bytes))

    def _refusal(self, open_: Open) -> Failed | None:
        facts, session = self._facts(), self._board.sessions.get(open_.session)
        waiting = self._board.waiting.get(open_.session)
        epoch = max(session.epoch if session else 0, waiting[0].epoch if waiting else 0)
        if facts.state == "draining":
            return DRAINING
        if facts.state in ("loading", "selftest", "quarantined", "closed"):
            return Failed("draining", f"this node is not ready: {facts.state}", "try again soon", retryable=True)
        if open_.fingerprint != facts.fingerprint:
            return Failed(
                "wrong_model",
                f"this node holds the model {facts.fingerprint[:16]}, not {open_.fingerprint[:16]}",
                "give every node the same converted model",
            )
        if open_.epoch < epoch:
            return Failed("fenced", f"epoch {open_.epoch} is over: epoch {epoch} has this session", "open it anew")
        if session is None and facts.state == "degraded":
            return Failed("read_failed", "this node's disk failed lately: no new session now", "try again in 30 s")
        return None

    def _fence(self, open_: Open) -> None:
        """Cut off whoever had the session: an older coordinator, or the same one's older stream."""
        waiting = self._board.waiting.pop(open_.session, None)
        if waiting is not None:
            end_link(waiting[0], _superseded(waiting[0], open_))
        session = self._board.sessions.get(open_.session)
        if session is None:
            return
        if session.link is not None:
            end_link(session.link, _superseded(session.link, open_))
            session.link, session.orphan_since_s = None, self._clock.now_s()
        if not session.is_closing:
            session.drop_steps()  # the same coordinator sends them again

    def _has_room(self, link: Link) -> bool:
        """Room for one more state. Makes it from the session left longest, or refuses the stream."""
        sessions = self._board.sessions.values()
        if len(sessions) < self._limits.max_sessions:
            return True
        if any(session.is_closing for session in sessions):
            return False
        left = [session for session in sessions if session.is_orphan and session.is_idle]
        if left:
            self._board.retire(min(left, key=lambda session: session.orphan_since_s))
            return False
        del self._board.waiting[link.session_name]
        most = self._limits.max_sessions
        refusal = Failed(
            "no_room",
            f"the plan has room for {most} sessions and all are in use",
            f"wait for one to end, or open the node with --max-sessions {most + 1}",
            retryable=True,
        )
        end_link(link, refusal)
        return False

    def _snapshot_for(self, open_: Open) -> Mark:
        """The snapshot to go on from: the one of the very tokens, else the highest that is not beyond them."""
        entries = [entry for entry in self._shelf.entries(open_.session) if entry.position <= open_.position]
        entries = [
            entry for entry in entries if entry.position < open_.position or entry.prefix_hash == open_.prefix_hash
        ]
        return Mark(entries[-1].position, entries[-1].prefix_hash) if entries else Mark(0, EMPTY_PREFIX)


def _superseded(link: Link, by: Open) -> Failed:
    return Failed("fenced", f"epoch {by.epoch} has come for this session; this stream's is {link.epoch}")
