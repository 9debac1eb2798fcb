"""What a node says at its terminal: its plan, then a line for each moment of its life; or the same as JSON lines.

Owns the wording. Refuses to decide when.
"""

from __future__ import annotations

import sys
from typing import Any

from streamoe_engine.sizes import GIB, MIB, format_size
from streamoe_proto.messages import NodeFacts

from .edge import print_json
from .life import Moment, NodePlan


class Report:
    """Speaks for one node on stdout."""

    def __init__(self, planned: NodePlan, host: str, *, as_json: bool) -> None:
        self._planned, self._host, self._as_json = planned, host, as_json

    def plan(self) -> None:
        """Each row of the plan, and the promise."""
        plan, why = self._planned.plan, self._planned.why
        rows = [(item.name, item.num_bytes, why.get(item.name, item.why)) for item in plan.items]
        if self._as_json:
            items = [{"name": name, "bytes": num_bytes, "why": reason} for name, num_bytes, reason in rows]
            network = self._planned.network
            print_json(
                {
                    "event": "plan",
                    "budget_bytes": plan.budget_bytes,
                    "items": items,
                    "first_layer": plan.first_layer,
                    "last_layer": plan.last_layer,
                    "num_layers": plan.num_layers,
                    "slots": plan.slots,
                    "num_experts": plan.num_experts_total,
                    "ctx_tokens": plan.ctx_tokens,
                    "max_sessions": network.max_sessions,
                    "step_tokens": network.step_tokens,
                    "credits": network.credits,
                }
            )
            return
        widest = max(len(name) for name, *_ in rows)
        for name, num_bytes, reason in rows:
            print(f"{name:<{widest}}  {format_size(num_bytes):>11}  {num_bytes / plan.budget_bytes:>6.1%}  {reason}")
        print(
            f"{'sum':<{widest}}  {format_size(plan.budget_bytes):>11}  100.0%  {plan.budget_bytes} B: the peak is "
            f"promised not to be higher; {plan.slots} slots for {plan.num_experts_total} experts ({plan.hot_share:.1%})"
        )

    def moment(self, moment: Moment, facts: NodeFacts, port: int) -> None:
        """One line: who, which layers, where, and what now."""
        address = f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"
        if self._as_json:
            print_json({"event": moment, "address": address, **_facts_json(facts)})
            return
        parts = [
            f"{facts.name} ({facts.node_id})",
            f"layers {facts.first_layer}-{facts.last_layer} of 0-{facts.num_layers - 1}",
            address,
            moment.upper() if moment == "ready" else moment,
        ]
        if moment == "ready":
            unit, scale = ("GiB", GIB) if facts.cap_bytes >= GIB else ("MiB", MIB)
            parts.append(f"peak {facts.peak_bytes / scale:.2f}/{facts.cap_bytes / scale:.2f} {unit}")
            parts.append("Ctrl-C drains and ends")
        print(" · ".join(parts), flush=True)


def warn(sentence: str) -> None:
    """A warning on stderr."""
    print(f"warning: {sentence}", file=sys.stderr)


def _facts_json(facts: NodeFacts) -> dict[str, Any]:
    names = ("node_id", "boot_id", "name", "state", "fingerprint", "first_layer", "last_layer", "num_layers")
    more = ("cap_bytes", "footprint_bytes", "peak_bytes", "canary", "max_sessions", "max_frame_bytes")
    return {name: getattr(facts, name) for name in (*names, *more)}
