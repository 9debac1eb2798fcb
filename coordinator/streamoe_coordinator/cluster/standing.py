"""How each band stands: what the chain's notices said of it last, and how long its last hop took.

Owns the words up, suspect and lost. Written by the threads that run tokens, read by any. Refuses to ask nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from streamoe_proto.messages import NodeFacts

from .notices import BandRecovered, BandRecovering, BandStalled, Notice

State = Literal["up", "suspect", "lost"]


@dataclass(frozen=True, slots=True)
class Standing:
    """state, and detail: why, "" while up. hop_s: of the last step, its way there and back without the node's own time,
    None before the first. is_settled: no run is busy with the band's trouble, so that who answers questions is up.
    """

    state: State = "up"
    detail: str = ""
    hop_s: float | None = None
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class HeardNode:
    """What a band's node last told of itself, and whether it still answers questions. rtt_s: of the last one, None for
    a band of this process."""

    facts: NodeFacts
    rtt_s: float | None = None
    is_silent: bool = False


class Standings:
    """One Standing a band. Any thread."""

    def __init__(self, layers: Sequence[tuple[int, int]]) -> None:
        self._lock = threading.Lock()
        self._bands = {span: Standing() for span in layers}

    def now(self) -> tuple[Standing, ...]:
        """In the order of the layers."""
        with self._lock:
            return tuple(self._bands.values())

    def hear(self, notice: Notice) -> None:
        """The chain told something."""
        if isinstance(notice, BandStalled):
            detail = f"silent for {notice.silent_s:.0f} s with a step unanswered; it has been asked again"
            self._set(notice.layers, state="suspect", detail=detail, is_settled=False)
        elif isinstance(notice, BandRecovering):
            self._set(notice.layers, state="lost", detail=f"{notice.cause}; recovering", is_settled=False)
        elif isinstance(notice, BandRecovered):
            self._set(notice.layers, state="up", detail="", is_settled=True)

    def answered(self, layers: tuple[int, int], hop_s: float) -> None:
        """A step of the band is done. A band that is lost is up when the ladder says so."""
        with self._lock:
            was = self._bands[layers]
            if was.state == "suspect":
                was = replace(was, state="up", detail="", is_settled=True)
            self._bands[layers] = replace(was, hop_s=hop_s)

    def opened(self) -> None:
        """A session has been opened in every band."""
        with self._lock:
            for span, was in self._bands.items():
                self._bands[span] = replace(was, state="up", detail="", is_settled=True)

    def settle(self) -> None:
        """A run is over, well or not."""
        with self._lock:
            for span, was in self._bands.items():
                self._bands[span] = replace(was, is_settled=True)

    def _set(self, layers: tuple[int, int], *, state: State, detail: str, is_settled: bool) -> None:
        with self._lock:
            self._bands[layers] = replace(self._bands[layers], state=state, detail=detail, is_settled=is_settled)
