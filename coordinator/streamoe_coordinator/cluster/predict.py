"""How fast 1, 2, ... N nodes would be, and whether more of them are worth it. Pure.

Owns the model of a token's time: t = sum over bands of (compute + wait for reads) + sum of hops. Nothing overlaps in
one conversation, so more nodes never cut the compute; they cut reads, since each hot tier covers fewer layers. What
is assumed rather than measured is in the figures' own names and in `ASSUMPTIONS`. Refuses to know how figures were
measured (speeds.py) and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from streamoe_engine.manifest import TAIL_PART, Manifest
from streamoe_engine.plan import PlanRequest, resident_bytes

ASSUMPTIONS = (
    "the share of picks that hit grows with the share of experts in memory as a power of it, fitted to what each node "
    "has shown",
    "a layer costs a node the same time whichever layer it is; waiting grows with the bytes read",
    "one conversation, nothing overlaps: bands and hops add up",
)
# Wider than the noise of two predictions from one measurement.
_NOTABLE = 0.03


@dataclass(frozen=True)
class ModelShape:
    """What a layer needs, by layer, bytes: resident weights, all its experts, the experts one token picks; tail_bytes:
    norm and head, in the last band."""

    resident: tuple[int, ...]
    experts: tuple[int, ...]
    picked: tuple[int, ...]
    tail_bytes: int

    @classmethod
    def of(cls, manifest: Manifest, request: PlanRequest) -> ModelShape:
        """request: how the nodes compute (dtype, backend), which decides what resident weights take."""
        layers = range(manifest.num_layers)
        experts = manifest.experts_by_layer
        strides = {layer: entry.record.stride_bytes for layer, entry in experts.items()}
        bare = replace(manifest, resident={**manifest.resident, TAIL_PART: ()})
        resident = tuple(resident_bytes(bare, request, layer, layer) for layer in layers)
        last = manifest.num_layers - 1
        return cls(
            resident,
            tuple(experts[n].num_experts * strides[n] if n in experts else 0 for n in layers),
            tuple(experts[n].top_k * strides[n] if n in experts else 0 for n in layers),
            resident_bytes(manifest, request, last, last) - resident[last],
        )

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self.resident)

    @cached_property
    def _sums(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(accumulate(values, initial=0)) for values in (self.resident, self.experts, self.picked))

    def between(self, first: int, last: int) -> tuple[int, int, int]:
        """(resident, experts, picked) bytes of layers first..last, the tail with the last."""
        resident, experts, picked = (sums[last + 1] - sums[first] for sums in self._sums)
        return resident + (self.tail_bytes if last == self.num_layers - 1 else 0), experts, picked


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """One node, as measured. Bytes, seconds.

    fixed_bytes: what its process costs with no layer at all. state_bytes: keys, values and recurrent state, a layer.
    compute_s: a token through one layer. wait_s: standing still, a byte read. reads_per_miss: 1 and what wrong guesses
    read besides. hit_power: hits = share of the experts in memory, to this power. hop_s: there and back, for one
    token.
    """

    node_id: str
    cap_bytes: int
    fixed_bytes: int
    state_bytes: int
    compute_s: float
    wait_s: float
    reads_per_miss: float
    hit_power: float
    hop_s: float


@dataclass(frozen=True, slots=True)
class BandPrediction:
    """What one node would do: hit_share 0 to 1, seconds of one token."""

    node_id: str
    first_layer: int
    last_layer: int
    hit_share: float
    read_bytes: int
    compute_s: float
    wait_s: float
    hop_s: float

    @property
    def token_s(self) -> float:
        """Compute, wait and hop."""
        return self.compute_s + self.wait_s + self.hop_s


@dataclass(frozen=True, slots=True)
class Prediction:
    """The best use of so many nodes. bands () when the model does not fit their caps."""

    num_nodes: int
    bands: tuple[BandPrediction, ...]

    @property
    def fits(self) -> bool:
        """Whether each band fits its node's cap."""
        return bool(self.bands)

    @property
    def token_s(self) -> float:
        """Seconds of a token of one conversation."""
        return sum(band.token_s for band in self.bands)

    @property
    def tokens_per_s(self) -> float:
        """One conversation; 0 when it does not fit."""
        return 1 / self.token_s if self.fits else 0.0

    @property
    def all_tokens_per_s(self) -> float:
        """As many conversations at once as there are nodes: the slowest band sets the pace."""
        return 1 / max(band.compute_s + band.wait_s for band in self.bands) if self.fits else 0.0


def band_prediction(shape: ModelShape, node: NodeSpeed, first: int, last: int) -> BandPrediction | None:
    """Layers first..last on this node; None when they do not fit its cap."""
    resident, experts, picked = shape.between(first, last)
    num_layers = last - first + 1
    room = node.cap_bytes - node.fixed_bytes - resident - node.state_bytes * num_layers
    if room < 0:
        return None
    share = min(1.0, room / experts) if experts else 1.0
    hit_share: float = share**node.hit_power
    read_bytes = round(picked * (1 - hit_share) * node.reads_per_miss)
    return BandPrediction(
        node.node_id,
        first,
        last,
        hit_share,
        read_bytes,
        compute_s=node.compute_s * num_layers,
        wait_s=node.wait_s * read_bytes,
        hop_s=node.hop_s,
    )


def predict(shape: ModelShape, nodes: Sequence[NodeSpeed]) -> tuple[Prediction, ...]:
    """For 1, 2, ... len(nodes) nodes: the choice and split with the shortest token. Bands lie in the given order."""
    num_layers = shape.num_layers
    # best[k][n]: (seconds, bands) of layers 0..n-1 on k of the nodes seen so far.
    empty: list[tuple[float, tuple[BandPrediction, ...]] | None] = [None] * (num_layers + 1)
    best = [list(empty) for _ in range(len(nodes) + 1)]
    best[0][0] = (0.0, ())
    for node in nodes:
        bands = {
            (first, last): band
            for first in range(num_layers)
            for last in range(first, num_layers)
            if (band := band_prediction(shape, node, first, last)) is not None
        }
        for k in range(len(nodes) - 1, -1, -1):  # downwards, so that a node is used once
            for (first, last), band in bands.items():
                before = best[k][first]
                if before is None:
                    continue
                candidate = (before[0] + band.token_s, (*before[1], band))
                known = best[k + 1][last + 1]
                if known is None or candidate[0] < known[0]:
                    best[k + 1][last + 1] = candidate
    ends = [best[k][num_layers] for k in range(1, len(nodes) + 1)]
    return tuple(Prediction(k, () if end is None else end[1]) for k, end in enumerate(ends, 1))


def advice(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """What the predictions say, a sentence for each number of nodes, and which is best for one conversation."""
    fitting = [entry for entry in predictions if entry.fits]
    if not fitting:
        return (f"the model does not fit {_nodes(len(predictions))} of these caps: raise them, or add a node",)
    best = max(fitting, key=lambda entry: (entry.tokens_per_s, -entry.num_nodes))
    lines = []
    previous: Prediction | None = None
    for entry in predictions:
        lines.append(_sentence(entry, previous))
        previous = entry if entry.fits else previous
    lines.append(f"fastest for one conversation: {_nodes(best.num_nodes)}, {best.tokens_per_s:.2f} tok/s")
    return tuple(lines)


def _sentence(entry: Prediction, before: Prediction | None) -> str:
    count = _nodes(entry.num_nodes)
    if not entry.fits:
        return f"{count}: the model does not fit the cap{'s' if entry.num_nodes > 1 else ''}"
    speed = f"{count}: {entry.tokens_per_s:.2f} tok/s"
    if before is None:
        return speed
    gain = entry.tokens_per_s / before.tokens_per_s - 1
    more_hops_s = sum(b.hop_s for b in entry.bands) - sum(b.hop_s for b in before.bands)
    saved_s = before.token_s - entry.token_s + more_hops_s
    why = f"hops cost {more_hops_s * 1000:+.1f} ms, memory and machines save {saved_s * 1000:.1f} ms a token"
    if gain < -_NOTABLE:
        return f"{speed}, SLOWER than {_nodes(before.num_nodes)} by {-gain:.0%}: {why}"
    if gain < _NOTABLE:
        return f"{speed}, no faster than {_nodes(before.num_nodes)}: {why}"
    return f"{speed}, {gain:.0%} faster than {_nodes(before.num_nodes)}: {why}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
