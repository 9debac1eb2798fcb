"""What a node tells of itself, put together from its plan, its model and its process.

Owns NodeFacts' making. A figure that the operating system is asked for is kept for a moment: asking costs most of a
millisecond. Refuses to know who asks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from streamoe_engine import footprint
from streamoe_engine.manifest import Manifest
from streamoe_engine.plan import Plan
from streamoe_proto.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, NodeFacts, NodeState, PlanRow

from .identity import Identity
from .limits import NodeLimits
from .ports import BandCounts

_FRESH_S = 0.2


@dataclass(frozen=True, slots=True)
class Fixed:
    """What does not change while a node runs. why: reasons for rows that a node added to the plan."""

    identity: Identity
    manifest: Manifest
    fingerprint: str
    plan: Plan
    limits: NodeLimits
    why: dict[str, str]


class FactsMaker:
    """Makes facts; any thread."""

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        self._base = _base(fixed)
        self._looked_s, self._memory = float("-inf"), (0, 0)

    def facts(self, state: NodeState, canary: str, counts: BandCounts, token_s: float) -> NodeFacts:
        """The facts now. counts: the band's. token_s: seconds of a step of one token, 0 until measured."""
        now_s = time.monotonic()
        if now_s - self._looked_s > _FRESH_S:
            used = footprint.current().total_bytes
            self._memory, self._looked_s = (used, max(used, footprint.peak_bytes())), now_s
        used_bytes, peak_bytes = self._memory
        per_token = counts.read_bytes // counts.tokens_run if counts.tokens_run else 0
        return NodeFacts(
            **self._base,
            state=state,
            canary=canary,
            footprint_bytes=used_bytes,
            peak_bytes=peak_bytes,
            token_s=token_s,
            read_bytes_per_token=per_token,
        )


def _base(fixed: Fixed) -> dict[str, Any]:
    plan, manifest, who = fixed.plan, fixed.manifest, fixed.identity
    rows = (PlanRow(item.name, item.num_bytes, fixed.why.get(item.name, item.why)) for item in plan.items)
    return {
        "node_id": who.node_id,
        "boot_id": who.boot_id,
        "name": who.name,
        "protocol_major": PROTOCOL_MAJOR,
        "protocol_minor": PROTOCOL_MINOR,
        "version": version("streamoe"),
        "family": manifest.family,
        "fingerprint": fixed.fingerprint,
        "num_layers": plan.num_layers,
        "first_layer": plan.first_layer,
        "last_layer": plan.last_layer,
        "hidden_size": manifest.hidden_size,
        "vocab_size": manifest.vocab_size,
        "ctx_tokens": plan.ctx_tokens,
        "chunk_tokens": plan.chunk_tokens,
        "max_frame_bytes": fixed.limits.max_frame_bytes,
        "kv": plan.kv,
        "compute_dtype": plan.compute_dtype,
        "backend": plan.backend,
        # The kernels sum each row alone and in one order; MLX chooses other kernels for other numbers of rows.
        "row_invariant": plan.backend == "kernels",
        "max_sessions": fixed.limits.max_sessions,
        "cap_bytes": plan.budget_bytes,
        "plan": tuple(rows),
    }
