"""From what the canary measured to the figures that predictions are made of. Pure.

Owns the fit: each figure is a measurement divided by what it grows with, and a stated default where nothing was
measured (a band whose experts are all in memory reads nothing). Refuses to know how it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from streamoe_proto.messages import NodeFacts

from .predict import ModelShape, NodeSpeed
from .verify import BandMeasure

# Where nothing was read: a SATA-class disk, and hits as measured on a 30B model at 6 to 27 % of its experts.
DEFAULT_WAIT_S = 1 / 1.5e9
DEFAULT_HIT_POWER = 1 / 3
_LEAST_POWER, _MOST_POWER = 0.02, 1.0
_PER_LAYER_ROWS = ("KV cache", "recurrent state", "snapshot buffer")
_HOT_ROWS = ("hot tier", "landing slots")


def speed_of(shape: ModelShape, measure: BandMeasure) -> NodeSpeed:
    """The speed of the node that served this band."""
    facts = measure.facts
    num_layers = facts.last_layer - facts.first_layer + 1
    resident, experts, picked = shape.between(facts.first_layer, facts.last_layer)
    rows = _rows(facts)
    state = sum(rows.get(name, 0) for name in _PER_LAYER_ROWS)
    hot = sum(rows.get(name, 0) for name in _HOT_ROWS)
    share = min(1.0, hot / experts) if experts else 1.0
    hit_share = measure.hits / measure.picks if measure.picks else 1.0
    missed_bytes = picked * measure.num_tokens * (1 - hit_share)
    return NodeSpeed(
        node_id=facts.node_id,
        cap_bytes=facts.cap_bytes,
        fixed_bytes=max(0, facts.cap_bytes - hot - state - resident),
        state_bytes=state // num_layers,
        compute_s=measure.compute_s / measure.num_tokens / num_layers,
        wait_s=measure.wait_s / measure.read_bytes if measure.read_bytes else DEFAULT_WAIT_S,
        reads_per_miss=max(1.0, measure.read_bytes / missed_bytes) if missed_bytes else 1.0,
        hit_power=_power(share, hit_share),
        hop_s=measure.wire_s / measure.num_tokens,
    )


def _power(share: float, hit_share: float) -> float:
    """The power of `share` that gives the hits that were seen."""
    if not 0 < share < 1 or not 0 < hit_share < 1:
        return DEFAULT_HIT_POWER
    return min(_MOST_POWER, max(_LEAST_POWER, math.log(hit_share) / math.log(share)))


def _rows(facts: NodeFacts) -> Mapping[str, int]:
    return {row.name: row.num_bytes for row in facts.plan}
