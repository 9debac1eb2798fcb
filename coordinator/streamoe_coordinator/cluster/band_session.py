"""One session's presence in one band: steps go in, results come out, whatever happens to the node between.

Owns the session's link and its history of inputs. A step joins the history once it is done, so at most one is ever
run again that another band may wait for. Refuses to know other bands and tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamoe_node.errors import BandLost
from streamoe_proto.messages import EMPTY_PREFIX, Checkpointed, Open, Step

from .budget import Budget
from .history import BandHistory, HistoryRoom
from .link import Answer, BandLink, WantedElsewhere
from .notices import BandRecovering, BandStalled, HistoryLimited, Notice
from .ports import Clock, Rescue, Seat
from .recovery import Ladder
from .seats import Seats
from .timers import Timers
from .troubles import LinkTrouble, Trouble


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions of a chain have in common."""

    seats: Seats
    room: HistoryRoom
    clock: Clock
    timers: Timers
    rescue: Rescue
    notify: Callable[[Notice], None]
    epoch: int


class BandSession:
    """A session in band number `band` of a chain. One thread at a time; close() from any.

    base, base_hash: where the nodes have the session already, from a snapshot; steps before it
    cannot be run again. on_layer: called with a layer that the node has begun, about once a second; what it raises
    ends the step, and with it the session. budget: for the ladder, one a run.
    """

    def __init__(self, name: str, band: int, shared: Shared, base: int = 0, base_hash: bytes = EMPTY_PREFIX) -> None:
        self.name, self.band, self.shared = name, band, shared
        self.history = BandHistory(shared.room, base, base_hash)
        self.link: BandLink | None = None
        self.budget = Budget(shared.clock, shared.timers.recover_s)
        self.on_layer: Callable[[int], None] | None = None
        self._step: Step | None = None
        self._is_history_whole = True
        self._is_death_told = False
        self.is_closed = False

    @property
    def seat(self) -> Seat:
        """Where the session is now, or would be opened."""
        return self.shared.seats[self.band] if self.link is None else self.link.seat

    @property
    def patience_s(self) -> float:
        """How long its node may be silent with a step unanswered: less when the run's budget is nearly spent."""
        timers = self.shared.timers
        return min(timers.lost_s, max(timers.suspect_s, self.budget.left_s))

    def open(self) -> None:
        """Open the session on the band's node, or wherever the ladder leads. Raises BandLost."""
        link = self.new_link(self.shared.seats[self.band])
        try:
            link.open(self.budget.deadline_s)
        except Trouble as trouble:
            self.drop_link()
            Ladder(self, trouble).climb(None)

    def submit(self, step: Step) -> None:
        """Send a step; its seq is chosen here. Never waits for the node."""
        assert self._step is None, "one step at a time"
        self._step = step
        if self.link is not None:
            self.link.submit(step)

    @property
    def is_dead(self) -> bool:
        """Whether its stream is known to have died."""
        return self.link is None or self.link.is_dead

    def answer(self, is_wanted_elsewhere: Callable[[], bool] | None = None) -> Answer | None:
        """The step's result, after any recovery; None when is_wanted_elsewhere ended the wait, and the step is still
        owed. Raises BandLost."""
        step, link = self._step, self.link
        assert step is not None
        try:
            if link is None:
                raise LinkTrouble("the session is not open")
            answer = link.answer(self.patience_s, is_wanted_elsewhere)
        except WantedElsewhere:
            return None
        except Trouble as trouble:
            answer = self._recovered(step, trouble)
        except BaseException:
            self._step = None
            raise
        self._step = None
        self._keep(step)
        return answer

    def tell_death(self) -> None:
        """Its stream has died while nothing was asked of it: tell so, once. The ladder waits for the next step."""
        if not self._is_death_told:
            self._is_death_told = True
            seat = self.seat
            self.shared.notify(BandRecovering(seat.layers, seat.target.name, "the stream died"))

    def ask_checkpoint(self) -> None:
        """Ask the node for a snapshot, without waiting."""
        if self.link is not None:
            self.link.ask_checkpoint()

    def wait_checkpoint(self, timeout_s: float) -> Checkpointed | None:
        """What the node kept when asked last; None where it refused. Raises BandLost."""
        seat = self.seat
        try:
            if self.link is None:
                raise LinkTrouble("the session is not open")
            return self.link.wait_checkpoint(timeout_s)
        except Trouble as trouble:
            raise BandLost(f"{seat} did not keep a snapshot: {trouble.cause}", "try again") from None

    def close(self) -> None:
        """The session is over. Never blocks."""
        if not self.is_closed:
            self.is_closed = True
            if self.link is not None:
                self.link.close(is_over=True)
            self.history.close()

    # ---- for the ladder

    def new_link(self, seat: Seat) -> BandLink:
        """A link to a seat, not yet open, instead of any other."""
        self.drop_link()
        self._is_death_told = False
        opening = Open(
            self.name, self.shared.epoch, seat.facts.fingerprint, self.history.position, self.history.prefix_hash
        )
        self.link = BandLink(seat, opening, self.shared.clock, self.shared.timers, self._tell_silence, self._tell_layer)
        return self.link

    def drop_link(self) -> None:
        """End the stream; the session stays on the node."""
        if self.link is not None:
            self.link.close(is_over=False)
            self.link = None

    @property
    def is_death_told(self) -> bool:
        """Whether the listener knows already that the stream is gone."""
        return self._is_death_told

    @property
    def is_history_whole(self) -> bool:
        """Whether every step since the base can be run again."""
        return self._is_history_whole

    def _recovered(self, step: Step, trouble: Trouble) -> Answer:
        try:
            recovered = Ladder(self, trouble).climb(step)
        except BaseException:
            self._step = None
            raise
        assert recovered is not None
        return recovered

    def _tell_silence(self, silent_s: float) -> None:
        seat = self.seat
        self.shared.notify(BandStalled(seat.layers, seat.target.name, silent_s))

    def _tell_layer(self, layer: int) -> None:
        if self.on_layer is not None and layer >= 0:
            self.on_layer(layer)

    def _keep(self, step: Step) -> None:
        if not self._is_history_whole:
            return
        try:
            self.history.append(step.inputs, step.next_hash)
        except OSError as error:
            self._is_history_whole = False
            self.shared.notify(HistoryLimited(self.seat.layers, f"the history file cannot be written: {error}"))
