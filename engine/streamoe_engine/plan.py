"""Dividing a cap: model facts + cap + context -> a Plan whose rows sum to the cap, or a refusal with ways out.

Owns the promise's arithmetic; a pure function of its arguments. Refuses to know MLX and files.
"""

from __future__ import annotations

from math import prod

from .errors import UsageError
from .kv.formats import KV_ELEMENT_BYTES
from .manifest import TAIL_PART, ExpertLayer, Field, Manifest, layer_part
from .plan_scratch import COMPUTE_BYTES, scratch_bytes
from .plan_types import POOL_ALIGNMENT_BYTES, HostCosts, Plan, PlanItem, PlanRequest
from .plan_ways import refusal

__all__ = ["HostCosts", "Plan", "PlanItem", "PlanRequest", "make_plan", "smallest_budget"]


def make_plan(manifest: Manifest, request: PlanRequest, host: HostCosts) -> Plan:
    """The plan of a band under a cap.

    Raises PlanDoesNotFit with what is needed, what is short and checked ways out; UsageError for layers that the
    model has not, a context over the model's, or counts below 1.
    """
    first, last = _checked_layers(manifest, request)
    experts = _experts(manifest, first, last)
    items, landing = _fixed_items(manifest, request, host), _landing_slots(experts, request)
    needed = sum(item.num_bytes for item in items)
    rest = request.budget_bytes - needed
    if rest < 0:
        raise refusal(request, needed, lambda other: smallest_budget(manifest, other, host))
    slot_bytes, total = _slot_bytes(experts), sum(entry.num_experts for entry in experts)
    hot = min(rest // (slot_bytes + page_table_bytes(slot_bytes)), total - landing)
    items.append(PlanItem("hot tier", rest, f"{hot} experts of {total} kept: the rest of the cap"))
    return Plan(
        budget_bytes=request.budget_bytes,
        items=tuple(items),
        slots=landing + hot,
        landing_slots=landing,
        slot_bytes=slot_bytes,
        num_layers=manifest.num_layers,
        first_layer=first,
        last_layer=last,
        ctx_tokens=request.ctx_tokens,
        kv=request.kv,
        chunk_tokens=request.chunk_tokens,
        guess_width=request.guess_width,
        top_k=max(entry.top_k for entry in experts),
        num_experts_total=total,
        compute_dtype=request.compute_dtype,
        backend=request.backend,
    )


def smallest_budget(manifest: Manifest, request: PlanRequest, host: HostCosts) -> int:
    """The smallest cap, in bytes, at which this request fits. Raises UsageError as make_plan does."""
    return sum(item.num_bytes for item in _fixed_items(manifest, request, host))


def page_table_bytes(num_bytes: int) -> int:
    """Page tables for num_bytes of memory: 8 bytes a 4 KiB page, also kept in reserve under huge pages."""
    return -(-num_bytes // 512)


def kv_bytes(manifest: Manifest, request: PlanRequest, first: int, last: int) -> int:
    """Keys and values of layers first..last for the whole context; a window layer keeps its window and a chunk."""
    total = 0
    for state in manifest.states[first : last + 1]:
        if state.kind == "kv":
            total += (state.key_dims + state.value_dims) * KV_ELEMENT_BYTES[request.kv] * request.ctx_tokens
        elif state.kind == "window":
            tokens = min(request.ctx_tokens, state.window) + request.chunk_tokens
            total += (state.key_dims + state.value_dims) * COMPUTE_BYTES[request.compute_dtype] * tokens
    return total


def recurrent_bytes(manifest: Manifest, first: int, last: int) -> int:
    """Recurrent state of one sequence in layers first..last, float32."""
    shapes = (shape for state in manifest.states[first : last + 1] for shape in state.arrays)
    return sum(4 * prod(shape) for shape in shapes)


def resident_bytes(manifest: Manifest, request: PlanRequest, first: int, last: int) -> int:
    """Weights kept in memory: the layers without their experts, and norm and head in the last band.

    Quantised matrices and their scales stay as stored; other weights take the compute type.
    """
    parts = [layer_part(layer) for layer in range(first, last + 1)]
    parts += [TAIL_PART] if last == manifest.num_layers - 1 else []
    return sum(_held_bytes(manifest.resident[part], request) for part in parts)


def _held_bytes(fields: tuple[Field, ...], request: PlanRequest) -> int:
    quantised = {field.name.rpartition(".")[0] for field in fields if field.name.endswith(".scales")}
    total = 0
    for field in fields:
        is_stored = field.dtype not in ("BF16", "F16") or field.name.rpartition(".")[0] in quantised
        is_matrix_in_arena = request.backend == "kernels" and len(field.shape) == 2
        widen = 1 if is_stored or is_matrix_in_arena or request.compute_dtype != "float32" else 2
        total += field.num_bytes * widen
    return total


def _experts(manifest: Manifest, first: int, last: int) -> list[ExpertLayer]:
    experts = [entry for entry in manifest.experts if first <= entry.layer <= last]
    if not experts:
        raise UsageError(
            f"layers {first}-{last} of {manifest.family} have no experts",
            "choose layers that include a Mixture-of-Experts layer",
        )
    return experts


def _slot_bytes(experts: list[ExpertLayer]) -> int:
    return max(entry.record.stride_bytes for entry in experts)


def _landing_slots(experts: list[ExpertLayer], request: PlanRequest) -> int:
    most = max(entry.top_k for entry in experts) + request.guess_width
    return min(most, sum(entry.num_experts for entry in experts))


def _fixed_items(manifest: Manifest, request: PlanRequest, host: HostCosts) -> list[PlanItem]:
    """Every row but the hot tier."""
    first, last = _checked_layers(manifest, request)
    experts = _experts(manifest, first, last)
    landing, kv = _landing_slots(experts, request), kv_bytes(manifest, request, first, last)
    has_head = last == manifest.num_layers - 1
    rows = [
        PlanItem("runtime", host.runtime_bytes, "Python and its libraries, measured now"),
        PlanItem("tokenizer", host.tokenizer_bytes, "measured while loading"),
        PlanItem(
            "resident weights",
            resident_bytes(manifest, request, first, last),
            f"layers {first}-{last} without experts" + (", norm and head" if has_head else ""),
        ),
        PlanItem("KV cache", kv, f"{request.ctx_tokens} tokens, {request.kv}: {kv // request.ctx_tokens} B each"),
        PlanItem("recurrent state", recurrent_bytes(manifest, first, last), "one sequence, float32"),
        PlanItem(
            "scratch",
            scratch_bytes(manifest, request.backend, request.chunk_tokens, request.ctx_tokens, first, last),
            f"activations of {request.chunk_tokens} prompt tokens, logits",
        ),
        *(PlanItem(name, num_bytes, "asked for") for name, num_bytes in request.extra_bytes),
        PlanItem("landing slots", landing * _slot_bytes(experts), f"{landing} records being read or just used"),
    ]
    system = page_table_bytes(sum(row.num_bytes for row in rows)) + POOL_ALIGNMENT_BYTES + host.growth_bytes
    rows.insert(1, PlanItem("system", system, "page tables, stacks, alignment, code not loaded yet"))
    return [row for row in rows if row.num_bytes]


def _checked_layers(manifest: Manifest, request: PlanRequest) -> tuple[int, int]:
    first, last = request.layers or (0, manifest.num_layers - 1)
    if not 0 <= first <= last < manifest.num_layers:
        raise UsageError(
            f"layers {first}-{last} are not in this model, which has 0-{manifest.num_layers - 1}",
            f"use --layers a-b with 0 <= a <= b <= {manifest.num_layers - 1}",
        )
    if manifest.max_context and request.ctx_tokens > manifest.max_context:
        raise UsageError(
            f"a context of {request.ctx_tokens} tokens is over the model's {manifest.max_context}",
            f"use --ctx {manifest.max_context} or less",
        )
    if min(request.ctx_tokens, request.chunk_tokens) < 1 or request.guess_width < 0:
        raise UsageError("context and chunk are at least 1 token", "use --ctx and --chunk of 1 or more")
    return first, last
