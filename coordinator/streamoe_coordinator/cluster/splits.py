"""Where the time of a run went, band by band, and the counts of bands elsewhere.

Owns the sums. Refuses to know how they are shown. A node's figures come with each result (Timing).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamoe_engine.telemetry import LayerCounts, Snapshot
from streamoe_proto.messages import NodeFacts, Timing

from .link import Answer
from .ports import Seat


@dataclass(frozen=True, slots=True)
class BandSplit:
    """One band's share of a run, in seconds: queued behind others, computing, standing still for its disk, and the
    rest of the round trip, which is the wire and the software on both ends.
    """

    layers: tuple[int, int]
    node: str
    queue_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    wire_s: float = 0.0
    read_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.queue_s + self.compute_s + self.wait_s + self.wire_s

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def split_of(answer: Answer) -> BandSplit:
    """The split of one step. Timing's compute_s is the whole step on the node, waiting for the disk included."""
    timing = answer.result.timing
    return BandSplit(
        answer.seat.layers,
        answer.seat.target.name,
        timing.queue_s,
        max(0.0, timing.compute_s - timing.wait_s),
        timing.wait_s,
        max(0.0, answer.round_trip_s - timing.queue_s - timing.compute_s),
        timing.read_bytes,
        answer.sent_bytes,
        answer.received_bytes,
    )


def joined(splits: Sequence[BandSplit]) -> BandSplit:
    """The sum of several steps of one band; the last one's node."""
    last = splits[-1]
    if len(splits) == 1:
        return last
    names = ("queue_s", "compute_s", "wait_s", "wire_s", "read_bytes", "sent_bytes", "received_bytes")
    return BandSplit(last.layers, last.node, **{name: sum(getattr(split, name) for split in splits) for name in names})


class BandTotals:
    """Counts of all sessions through each band since the chain was made. Any thread."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._lock = threading.Lock()
        self._facts = [seat.facts for seat in seats]
        self._counts = [LayerCounts(seat.layers[0]) for seat in seats]
        self._tokens_run = 0

    def add(self, band: int, timing: Timing) -> None:
        """A step of band number `band` is done."""
        with self._lock:
            was = self._counts[band]
            self._counts[band] = LayerCounts(
                was.layer,
                picks=was.picks + timing.picks,
                hits=was.hits + timing.hits,
                misses=was.misses + timing.picks - timing.hits,
                read_bytes=was.read_bytes + timing.read_bytes,
                wait_s=was.wait_s + timing.wait_s,
            )

    def add_tokens(self, num_tokens: int) -> None:
        """So many tokens have been taken in."""
        with self._lock:
            self._tokens_run += num_tokens

    def set_facts(self, band: int, facts: NodeFacts) -> None:
        """A node told of itself anew, or another serves the band."""
        with self._lock:
            self._facts[band] = facts

    def snapshot(self) -> Snapshot:
        """One Snapshot for all: caps and footprints of the nodes summed as last told, one LayerCounts a band, under
        its first layer's number. What guesses found is not told by nodes and counts as missed.
        """
        with self._lock:
            return Snapshot(
                sum(facts.cap_bytes for facts in self._facts),
                sum(facts.footprint_bytes for facts in self._facts),
                sum(facts.peak_bytes for facts in self._facts),
                self._tokens_run,
                tuple(self._counts),
            )
