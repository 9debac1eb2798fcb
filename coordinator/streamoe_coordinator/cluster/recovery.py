"""The ladder that brings a lost band back: resume, replay, another node, this process, or a typed end.

Owns the order of what is tried and the budget for it. A stream that died is dialled again: a node that still has the
session answers the repeated step from what it kept. A node that has less is given the band's own steps again, from a
snapshot of its or from the beginning, cut as they were the first time. After a while, or at once when the node says
no, another seat is asked for. Every wait ends with the budget; time in which a replay moves on is given back to it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamoe_engine.errors import StateLost, StreamoeError
from streamoe_node.errors import BandLost
from streamoe_proto.messages import NodeFacts, Ready, Step

from .link import Answer, BandLink
from .notices import BandRecovered, BandRecovering
from .ports import ChannelLost, Seat
from .troubles import LinkTrouble, NodeUnfit, ReplayNeeded, SessionTaken, StepFailed, Trouble

if TYPE_CHECKING:
    from .band_session import BandSession


_SHORTEST_ATTEMPT_S = 1.0


@dataclass(slots=True)
class _Replay:
    """What was run again to come back."""

    from_position: int
    num_tokens: int = 0
    is_resumed: bool = False


class Ladder:
    """One climb, for one session in one band."""

    def __init__(self, session: BandSession, trouble: Trouble) -> None:
        self._session, self._trouble, self._budget = session, trouble, session.budget
        self._budget.begin()
        self._began_s = session.shared.clock.now_s()
        self._first_seat = session.seat
        self._unfit: dict[str, str] = {}  # node id -> why it is not asked first any more
        self._causes: dict[str, str] = {}  # seat -> its last trouble
        self._num_failed_steps: dict[str, int] = {}
        self._has_tried_local = False
        self._random = random.Random(f"{session.name}/{session.band}")

    def climb(self, step: Step | None) -> Answer | None:
        """Bring the session to where `step` begins and run it; None: only open it. Raises BandLost."""
        session = self._session
        first = self._first_seat
        if not session.is_death_told:
            session.shared.notify(BandRecovering(first.layers, first.target.name, self._trouble.cause))
        self._note(first, self._trouble)
        backoff_s = session.shared.timers.backoff_first_s
        while True:
            if session.is_closed:
                raise StateLost(session.history.position)
            seat = self._next_seat()
            try:
                answer, replay = self._try(seat, step)
            except Trouble as trouble:
                session.drop_link()
                self._trouble = trouble
                self._note(seat, trouble)
                if isinstance(trouble, SessionTaken):
                    raise self._lost(trouble.cause) from None
            else:
                self._tell(seat, replay)
                return answer
            pause_s = backoff_s * self._random.uniform(0.5, 1.0)
            # An attempt that has no time tells nothing: the causes stay those of attempts that had.
            if self._budget.left_s < pause_s + _SHORTEST_ATTEMPT_S:
                raise self._lost(f"not recovered within {self._budget.seconds:.0f} s")
            session.shared.clock.sleep(pause_s)
            backoff_s = min(2 * backoff_s, session.shared.timers.backoff_most_s)

    # ---- which seat

    def _next_seat(self) -> Seat:
        session = self._session
        seat = session.shared.seats[session.band]
        is_moved = seat.target.node_id != self._first_seat.target.node_id
        is_patient = session.shared.clock.now_s() - self._began_s < session.shared.timers.grace_s
        if seat.target.node_id not in self._unfit and (is_patient or is_moved):
            return seat
        avoid = frozenset({seat.target.node_id, *self._unfit})
        other = session.shared.rescue.find_replacement(seat.layers, avoid)
        if other is not None:
            self._move_snapshot(seat, other)
            return other
        return self._local_seat(seat) or seat

    def _local_seat(self, seat: Seat) -> Seat | None:
        if self._has_tried_local:
            return None
        self._has_tried_local = True
        start_s = self._session.shared.clock.now_s()
        try:
            local = self._session.shared.rescue.open_locally(seat.layers)
        except StreamoeError as error:
            self._causes["this process"] = error.message
            return None
        self._budget.give_back(self._session.shared.clock.now_s() - start_s)
        return local

    def _move_snapshot(self, source: Seat, target: Seat) -> None:
        if isinstance(self._trouble, NodeUnfit) and self._trouble.is_leaving:
            most_s = min(30.0, self._budget.left_s)
            self._session.shared.rescue.move_snapshot(self._session.name, source, target, most_s)

    def _note(self, seat: Seat, trouble: Trouble) -> None:
        node_id = seat.target.node_id
        self._causes[str(seat)] = trouble.cause
        if isinstance(trouble, StepFailed):
            self._num_failed_steps[node_id] = self._num_failed_steps.get(node_id, 0) + 1
        # Once may be a bad read; a node that fails a step twice fails it again.
        if isinstance(trouble, NodeUnfit) or self._num_failed_steps.get(node_id, 0) > 1:
            self._unfit[node_id] = trouble.cause
        seats, band = self._session.shared.seats, self._session.band
        if seats[band].target.node_id != node_id:
            # A stand-in that does not serve is not asked again in this climb.
            self._unfit[node_id] = trouble.cause

    # ---- one attempt

    def _try(self, seat: Seat, step: Step | None) -> tuple[Answer | None, _Replay]:
        session = self._session
        link = session.new_link(seat)
        ready = link.open(self._budget.deadline_s)
        facts = self._verified(seat)
        answer, replay = self._bring_up(link, ready, step)
        if session.shared.seats[session.band] != seat or facts != seat.facts:
            session.shared.seats.move(session.band, Seat(seat.dialer, seat.target, facts))
        return answer, replay

    def _verified(self, seat: Seat) -> NodeFacts:
        timeout_s = min(self._session.shared.timers.dial_s, self._budget.left_s)
        try:
            facts = seat.dialer.node_facts(seat.target, timeout_s)
        except ChannelLost as error:
            raise LinkTrouble(str(error)) from None
        difference = what_differs(self._first_seat.facts, facts)
        if difference:
            raise NodeUnfit(f"it serves something else now: {difference}")
        return facts

    def _bring_up(self, link: BandLink, ready: Ready, step: Step | None) -> tuple[Answer | None, _Replay]:
        history = self._session.history
        if step is None and history.position == history.base:
            return None, _Replay(history.base, is_resumed=True)
        if step is not None and ready.last_seq and _is_after(ready, step):
            link.submit_again(step)
            try:
                return self._answer(link), _Replay(step.position, is_resumed=True)
            except ReplayNeeded:
                pass  # it has done the step, and no longer has the result
        begin = history.position
        if history.is_mark(ready.position, ready.prefix_hash):
            begin = ready.position
        while True:
            replay = _Replay(begin, is_resumed=begin == history.position)
            try:
                return self._run_from(link, begin, step, replay), replay
            except ReplayNeeded as needed:
                begin = self._lower(begin, needed)

    def _lower(self, begin: int, needed: ReplayNeeded) -> int:
        history = self._session.history
        if begin <= history.base:
            raise LinkTrouble(needed.cause)
        is_lower = history.base <= needed.from_position < begin and history.is_mark(needed.from_position)
        return needed.from_position if is_lower else history.base

    def _run_from(self, link: BandLink, begin: int, step: Step | None, replay: _Replay) -> Answer | None:
        session = self._session
        if begin < session.history.position and not session.is_history_whole:
            raise LinkTrouble("the steps it needs again could not be kept")
        try:
            for past in session.history.since(begin):
                link.submit(Step(0, past.position, past.inputs, "ack", past.prefix_hash, past.next_hash))
                self._answer(link)
                replay.num_tokens += past.end - past.position
        except OSError as error:
            raise LinkTrouble(f"the history file cannot be read: {error}") from None
        if step is None:
            return None
        link.submit(step)
        return self._answer(link)

    def _answer(self, link: BandLink) -> Answer:
        clock = self._session.shared.clock
        start_s = clock.now_s()
        answer = link.answer(self._session.patience_s)
        self._budget.give_back(clock.now_s() - start_s)
        return answer

    # ---- what is told

    def _tell(self, seat: Seat, replay: _Replay) -> None:
        session, first = self._session, self._first_seat
        session.shared.notify(
            BandRecovered(
                seat.layers,
                first.target.name,
                seat.target.name,
                "resumed" if replay.is_resumed else "replayed",
                replay.from_position,
                replay.num_tokens,
                session.shared.clock.now_s() - self._began_s,
            )
        )

    def _lost(self, why: str) -> BandLost:
        first, last = self._first_seat.layers
        causes = "; ".join(f"{where}: {cause}" for where, cause in self._causes.items())
        return BandLost(
            f"layers {first}-{last} on {self._first_seat.target.name} are lost, {why}: {causes}",
            f"start a node with --layers {first}-{last} of the same model, then ask again; the conversation is kept",
        )


def what_differs(wanted: NodeFacts, found: NodeFacts) -> str:
    """Why a node's band cannot stand for another's, as a phrase; "" where it can: its numbers would be the same."""
    names = ("fingerprint", "first_layer", "last_layer", "kv", "compute_dtype", "backend", "protocol_major")
    for name in names:
        if getattr(wanted, name) != getattr(found, name):
            return f"{name} {getattr(found, name)} where {getattr(wanted, name)} was"
    if wanted.canary and found.canary and wanted.canary != found.canary:
        return "its canary differs, so its arithmetic does"
    for name in ("ctx_tokens", "max_frame_bytes"):
        if getattr(found, name) < getattr(wanted, name):
            return f"{name} {getattr(found, name)} is less than {getattr(wanted, name)}"
    return ""


def _is_after(ready: Ready, step: Step) -> bool:
    return (ready.position, ready.prefix_hash) == (step.position + len(step.inputs), step.next_hash)
