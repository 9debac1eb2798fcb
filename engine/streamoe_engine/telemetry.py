"""What happened: counters per layer, and one frozen Snapshot that every front end shows.

Owns the counting. Refuses to know how figures are printed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """One layer's counts since the band was opened.

    picks: experts needed, once a token in decode and once a chunk in prefill; each is a hit (its record was in a
    slot), a guess hit (a guess had asked for it) or a miss (read on demand). guesses: reads begun early; wasted:
    those of them whose expert was not picked. read_bytes: all reads, wasted ones too. wait_s: seconds the compute
    thread stood still for reads.
    """

    layer: int
    picks: int = 0
    hits: int = 0
    guess_hits: int = 0
    misses: int = 0
    guesses: int = 0
    wasted: int = 0
    read_bytes: int = 0
    wait_s: float = 0.0

    def since(self, earlier: LayerCounts) -> LayerCounts:
        """The counts that came after `earlier`."""
        names = [field.name for field in fields(self) if field.name != "layer"]
        return LayerCounts(self.layer, **{name: getattr(self, name) - getattr(earlier, name) for name in names})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a band: its cap, what the operating system says it costs, and the counts of its layers.

    head_read_bytes, head_wait_s: what a streamed output head read, and how long the compute thread stood still for it.
    """

    budget_bytes: int
    footprint_bytes: int
    peak_bytes: int
    tokens_run: int
    layers: tuple[LayerCounts, ...]
    head_read_bytes: int = 0
    head_wait_s: float = 0.0

    def since(self, earlier: Snapshot) -> Snapshot:
        """Counts after `earlier`; footprint and peak stay as they are now."""
        pairs = zip(self.layers, earlier.layers, strict=True)
        return Snapshot(
            self.budget_bytes,
            self.footprint_bytes,
            self.peak_bytes,
            self.tokens_run - earlier.tokens_run,
            tuple(now.since(then) for now, then in pairs),
            self.head_read_bytes - earlier.head_read_bytes,
            self.head_wait_s - earlier.head_wait_s,
        )

    def total(self, name: str) -> float:
        """Sum of one count over all layers, by LayerCounts' name."""
        return sum(getattr(layer, name) for layer in self.layers)

    @property
    def hit_rate(self) -> float:
        """Share of picks whose record was in a slot without any read; 1.0 where nothing was picked."""
        picks = self.total("picks")
        return self.total("hits") / picks if picks else 1.0

    @property
    def read_bytes(self) -> int:
        """Bytes read for experts, and for the output head where it is streamed."""
        return int(self.total("read_bytes")) + self.head_read_bytes

    @property
    def wait_s(self) -> float:
        """Seconds the compute thread stood still for reads."""
        return self.total("wait_s") + self.head_wait_s


class Counters:
    """The running counts of one layer; plain numbers, changed by the compute thread only."""

    __slots__ = ("guess_hits", "guesses", "hits", "layer", "misses", "picks", "read_bytes", "wait_s", "wasted")

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.picks = self.hits = self.guess_hits = self.misses = 0
        self.guesses = self.wasted = self.read_bytes = 0
        self.wait_s = 0.0

    def freeze(self) -> LayerCounts:
        """The counts as they are now."""
        return LayerCounts(**{name: getattr(self, name) for name in self.__slots__})
