"""What front ends show of plans and answers: JSON objects and one line, all from the same values.

Owns the JSON's shape and the line's wording. Refuses to print.
"""

from __future__ import annotations

from typing import Any

from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.plan import Plan
from streamoe_engine.sizes import GIB, MIB, format_size
from streamoe_engine.telemetry import Snapshot

from .edge import SCHEMA, error_json
from .events import Finished, Shown

_REASONS = {"stop": "", "length": " · ended at the token limit", "cancelled": " · stopped"}


def plan_json(plan: Plan, smallest_bytes: int | None = None) -> dict[str, Any]:
    """A plan that fits; smallest_bytes: the smallest cap that would, where known."""
    smallest = {} if smallest_bytes is None else {"smallest_budget_bytes": smallest_bytes}
    return {
        "schema": SCHEMA,
        "fits": True,
        "budget_bytes": plan.budget_bytes,
        "items": [{"name": item.name, "bytes": item.num_bytes, "why": item.why} for item in plan.items],
        "slots": plan.slots,
        "slot_bytes": plan.slot_bytes,
        "num_experts": plan.num_experts_total,
        "num_layers": plan.num_layers,
        "first_layer": plan.first_layer,
        "last_layer": plan.last_layer,
        "top_k": plan.top_k,
        "guess_width": plan.guess_width,
        "ctx_tokens": plan.ctx_tokens,
        "chunk_tokens": plan.chunk_tokens,
        "kv": plan.kv,
        **smallest,
    }


def refusal_json(error: PlanDoesNotFit) -> dict[str, Any]:
    """A cap that does not fit: the error's object, with the plan's own keys beside it."""
    return {
        **error_json(error),
        "fits": False,
        "budget_bytes": error.cap_bytes,
        "needed_bytes": error.needed_bytes,
        "short_bytes": error.short_bytes,
        "suggestions": error.next_step,
    }


def answer_json(shown: Shown, plan: Plan | None) -> dict[str, Any]:
    """One answer, whole; plan: of the band that made it, None where several did."""
    finished = shown.finished
    timings, usage = finished.timings, finished.usage
    return {
        "schema": SCHEMA,
        "text": shown.text,
        "thinking": shown.thinking,
        "token_ids": list(finished.token_ids),
        "finish_reason": finished.reason,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        },
        "timings": {
            "ttft_s": timings.ttft_s,
            "prefill_s": timings.prefill_s,
            "decode_s": timings.decode_s,
            "tokens_per_s": timings.tokens_per_s,
            "wait_s": finished.counts.wait_s,
        },
        "layers": layers_json(finished.counts),
        "hit_rate": finished.counts.hit_rate,
        "read_bytes": finished.counts.read_bytes,
        **({} if plan is None else {"plan": plan_json(plan)}),
        "footprint_bytes": finished.counts.footprint_bytes,
        "peak_bytes": finished.counts.peak_bytes,
    }


def layers_json(counts: Snapshot) -> list[dict[str, Any]]:
    """The counts of each layer: hit + guess + miss are all picks; wasted guesses were read for nothing."""
    return [
        {
            "layer": layer.layer,
            "hit": layer.hits,
            "guess": layer.guess_hits,
            "miss": layer.misses,
            "wasted": layer.wasted,
            "bytes_read": layer.read_bytes,
            "wait_s": layer.wait_s,
        }
        for layer in counts.layers
    ]


def answer_line(finished: Finished) -> str:
    """The one line after an answer."""
    timings, decode = finished.timings, finished.decode_counts
    steps = timings.num_decode_steps
    parts = [f"{finished.usage.completion_tokens} tok"]
    if timings.tokens_per_s is not None:
        parts.append(f"{timings.tokens_per_s:.1f} tok/s")
    if timings.ttft_s is not None:
        parts.append(f"TTFT {timings.ttft_s:.1f} s")
    if steps:
        parts.append(f"hit {decode.hit_rate:.0%}")
        parts.append(
            f"read {decode.read_bytes / steps / MIB:.{0 if decode.read_bytes > 10 * MIB * steps else 1}f} MiB/tok"
        )
    parts.append(f"peak {_of_cap(decode.peak_bytes, decode.budget_bytes)}")
    return " · ".join(parts) + _REASONS[finished.reason]


def promise(plan: Plan) -> str:
    """The sentence under a plan."""
    return (
        f"peak is promised ≤ {exact_size(plan.budget_bytes)}; "
        f"{plan.slots} slots for {plan.num_experts_total} experts ({plan.hot_share:.1%}), "
        f"{format_size(plan.slot_bytes)} each"
    )


def exact_size(num_bytes: int) -> str:
    """ "4.00 GiB (4294967296 B)"."""
    return f"{format_size(num_bytes)} ({num_bytes} B)"


def _of_cap(num_bytes: int, cap_bytes: int) -> str:
    unit, scale, digits = ("GiB", GIB, 2) if cap_bytes >= GIB else ("MiB", MIB, 0)
    return f"{num_bytes / scale:.{digits}f}/{cap_bytes / scale:.{digits}f} {unit}"
