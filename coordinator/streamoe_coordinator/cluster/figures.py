"""The figures of a chain: counts, the split of the last run, what prompts cost.

Owns the bookkeeping after steps. Any thread. Refuses to know how steps travel.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from streamoe_engine.telemetry import Snapshot
from streamoe_proto.messages import NodeFacts

from .pipeline import BandAnswer
from .ports import Seat
from .prompt_cuts import CostMeter, step_tokens
from .splits import BandSplit, BandTotals, joined, split_of


class ChainFigures:
    """Figures of all sessions since the chain was made."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._lock = threading.Lock()
        self._totals = BandTotals(seats)
        self._meters = [CostMeter(seat.facts.chunk_tokens) for seat in seats]
        self.last_split: tuple[BandSplit, ...] = ()

    def record(self, answers: Sequence[BandAnswer], num_tokens: int) -> None:
        """A run is over: what bands answered in it, and how many tokens were taken in."""
        splits: list[list[BandSplit]] = [[] for _ in self._meters]
        for done in answers:
            timing = done.answer.result.timing
            splits[done.band].append(split_of(done.answer))
            self._totals.add(done.band, timing)
            with self._lock:
                self._meters[done.band].add(done.num_tokens, timing.compute_s)
        self._totals.add_tokens(num_tokens)
        if answers:
            self.last_split = tuple(joined(of_band) for of_band in splits if of_band)

    def set_facts(self, band: int, facts: NodeFacts) -> None:
        """A node told of itself anew, or another serves the band."""
        self._totals.set_facts(band, facts)

    def snapshot(self) -> Snapshot:
        """See BandTotals.snapshot."""
        return self._totals.snapshot()

    def step_tokens(self, num_tokens: int, most_tokens: int) -> int:
        """How many tokens of a prompt to run at once."""
        with self._lock:
            costs = [meter.cost() for meter in self._meters]
        return step_tokens(num_tokens, costs, most_tokens)
