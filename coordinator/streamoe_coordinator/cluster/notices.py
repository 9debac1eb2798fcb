"""What the chain tells while it works, as values: a band stalls, is being recovered, is back.

Owns the nouns. Refuses to know how they are shown. Told on the thread that runs tokens, so a listener must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a band came back. resumed: the same process, nothing run again; replayed: steps were run again, from a snapshot
# or from the beginning.
Way = Literal["resumed", "replayed"]


@dataclass(frozen=True, slots=True)
class BandStalled:
    """A node owes a result and has been silent for silent_s; it has been asked again."""

    layers: tuple[int, int]
    node: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class BandRecovering:
    """A band's session is lost; the ladder begins. cause: a phrase."""

    layers: tuple[int, int]
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class BandRecovered:
    """The band answers again. node_before and node: where it was and is. from_position: where the replay began."""

    layers: tuple[int, int]
    node_before: str
    node: str
    way: Way
    from_position: int
    replayed_tokens: int
    seconds: float

    def __str__(self) -> str:
        first, last = self.layers
        moved = "" if self.node == self.node_before else f", moved from {self.node_before}"
        how = "resumed" if self.way == "resumed" else f"ran {self.replayed_tokens} tokens again"
        return f"band {first}-{last} on {self.node} is back after {self.seconds:.1f} s ({how}{moved})"


@dataclass(frozen=True, slots=True)
class HistoryLimited:
    """Steps of a band could not be kept any more: after a loss it cannot be replayed. cause: a phrase."""

    layers: tuple[int, int]
    cause: str


Notice = BandStalled | BandRecovering | BandRecovered | HistoryLimited
