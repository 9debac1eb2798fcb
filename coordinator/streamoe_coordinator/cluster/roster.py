"""Which nodes are there: places to look at, when to look again, and what was found. Pure: every call is given the time.

Owns liveness: a node is there while one of its places answered lately, and gone otherwise, whatever mDNS says; at
most one question is open a place, and failures are asked again later and later. Also who is who: one id under two
boots is a restart where the second began after the first's last sign of life, else two machines with one id, and both
are shown. Refuses to know how a place is asked.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from streamoe_proto.messages import NodeFacts

from .places import Place

PROBE_S = 2.0
# With the probe's own timeout, a node that died is gone after this long and not later.
GHOST_S = 10.0
# A place known by mDNS alone that never answers is forgotten; it comes back when it is announced again.
FORGET_S = 120.0
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 0.5, 4.0


@dataclass(frozen=True, slots=True)
class Sight:
    """An answer of a place: its facts, and how long the answer took."""

    facts: NodeFacts
    rtt_s: float


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that is there. places: where it answers, the quickest first. rtt_s: of the first place."""

    facts: NodeFacts
    places: tuple[Place, ...]
    rtt_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class Silent:
    """A place that does not answer, and why."""

    place: Place
    why: str
    is_static: bool


@dataclass(slots=True)
class _Watched:
    place: Place
    is_static: bool
    sighted_s: float
    due_s: float
    is_asked: bool = False
    num_failures: int = 0
    last: Sight | None = None
    last_s: float = float("-inf")
    why: str = ""


@dataclass(slots=True)
class _Boot:
    first_s: float
    last_s: float


class Roster:
    """All places, and the nodes behind them. Not thread-safe: its owner locks."""

    def __init__(self, seed: int | None = None) -> None:
        self._watched: dict[Place, _Watched] = {}
        self._boots: dict[str, dict[str, _Boot]] = defaultdict(dict)
        self._random = random.Random(seed)

    def sight(self, places: Iterable[Place], now_s: float, *, is_static: bool = False) -> None:
        """These places were named or announced: look at them, soon if they are new or silent."""
        for place in places:
            watched = self._watched.get(place)
            if watched is None:
                self._watched[place] = _Watched(place, is_static, now_s, now_s)
                continue
            watched.sighted_s, watched.is_static = now_s, watched.is_static or is_static
            if watched.num_failures:
                watched.due_s = min(watched.due_s, now_s + _BACKOFF_FIRST_S)

    def hurry(self, places: Iterable[Place], now_s: float) -> None:
        """Something was said of these places, such as a farewell: look now. It removes nothing."""
        for place in places:
            if place in self._watched:
                self._watched[place].due_s = now_s

    def take_due(self, now_s: float) -> tuple[Place, ...]:
        """Places to ask now; each is answered by `answered` or `failed` before it is due again."""
        for watched in list(self._watched.values()):
            is_stale = now_s - max(watched.sighted_s, watched.last_s) > FORGET_S
            if not watched.is_static and not watched.is_asked and is_stale:
                del self._watched[watched.place]
        due = [watched for watched in self._watched.values() if not watched.is_asked and watched.due_s <= now_s]
        for watched in due:
            watched.is_asked = True
        return tuple(watched.place for watched in sorted(due, key=lambda watched: watched.due_s))

    def next_due_s(self, now_s: float) -> float:
        """When a place is due next; PROBE_S from now at the latest."""
        times = (watched.due_s for watched in self._watched.values() if not watched.is_asked)
        return max(now_s, min(times, default=now_s + PROBE_S))

    def answered(self, place: Place, sight: Sight, now_s: float) -> None:
        """A place told who is there."""
        watched = self._watched.get(place)
        if watched is None:
            return
        watched.is_asked, watched.num_failures, watched.why = False, 0, ""
        watched.last, watched.last_s = sight, now_s
        watched.due_s = now_s + PROBE_S * self._random.uniform(0.8, 1.0)
        boots = self._boots[sight.facts.node_id]
        if sight.facts.boot_id in boots:
            boots[sight.facts.boot_id].last_s = now_s
            return
        boots[sight.facts.boot_id] = _Boot(now_s, now_s)
        # A new process: what the node's other places said is of the old one.
        self.hurry((w.place for w in self._of_node(sight.facts.node_id) if w is not watched), now_s)

    def failed(self, place: Place, why: str, now_s: float) -> None:
        """A place did not answer."""
        watched = self._watched.get(place)
        if watched is None:
            return
        backoff_s = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2**watched.num_failures)
        watched.is_asked, watched.why = False, why
        watched.num_failures += 1
        watched.due_s = now_s + backoff_s * self._random.uniform(0.5, 1.0)

    def nodes(self, now_s: float) -> tuple[SeenNode, ...]:
        """The nodes that are there, by id. Two entries of one id: two machines have it."""
        alive: dict[tuple[str, str], list[_Watched]] = defaultdict(list)
        for watched in self._watched.values():
            if watched.last is not None and now_s - watched.last_s <= GHOST_S:
                facts = watched.last.facts
                if not self._is_superseded(facts):
                    alive[facts.node_id, facts.boot_id].append(watched)
        return tuple(self._seen(alive[key]) for key in sorted(alive))

    def silent(self, now_s: float) -> tuple[Silent, ...]:
        """Places that do not answer now, those named by the user first."""
        quiet = [w for w in self._watched.values() if w.why and now_s - w.last_s > GHOST_S]
        ordered = sorted(quiet, key=lambda w: (not w.is_static, w.place))
        return tuple(Silent(w.place, w.why, w.is_static) for w in ordered)

    @property
    def is_settled(self) -> bool:
        """Whether every place has answered or failed at least once."""
        return all(watched.last is not None or watched.num_failures for watched in self._watched.values())

    def _of_node(self, node_id: str) -> list[_Watched]:
        return [w for w in self._watched.values() if w.last is not None and w.last.facts.node_id == node_id]

    def _is_superseded(self, facts: NodeFacts) -> bool:
        boots = self._boots[facts.node_id]
        own = boots[facts.boot_id]
        return any(other.first_s > own.last_s for boot, other in boots.items() if boot != facts.boot_id)

    def _seen(self, group: list[_Watched]) -> SeenNode:
        ranked = sorted(group, key=lambda w: (w.num_failures > 0, w.last.rtt_s if w.last else 0.0, w.place))
        latest = max(group, key=lambda w: w.last_s)
        assert latest.last is not None and ranked[0].last is not None
        return SeenNode(latest.last.facts, tuple(w.place for w in ranked), ranked[0].last.rtt_s, latest.last_s)
