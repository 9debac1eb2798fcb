"""Dividing a cap: model facts + cap + context -> a Plan whose rows sum to the cap, or a refusal with ways out.

Owns the promise's arithmetic; a pure function of its arguments. Refuses to know MLX and files.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from .errors import PlanDoesNotFit, UsageError
from .kv.formats import KV_ELEMENT_BYTES
from .manifest import TAIL_PART, Field, Manifest, layer_part
from .plan_scratch import COMPUTE_BYTES, scratch_bytes
from .plan_types import POOL_ALIGNMENT_BYTES, HostCosts, Plan, PlanItem, PlanRequest
from .plan_ways import refusal
from .sizes import format_size

__all__ = ["HostCosts", "Plan", "PlanItem", "PlanRequest", "make_plan", "smallest_budget"]


def make_plan(manifest: Manifest, request: PlanRequest, host: HostCosts) -> Plan:
    """The plan of a band under a cap.

    Raises PlanDoesNotFit with what is needed, what is short and checked ways out; UsageError for layers that the
    model has not, a context over the model's, or counts below 1.
    """
    first, last = _checked_layers(manifest, request)
    experts = [entry for entry in manifest.experts if first <= entry.layer <= last]
    if not experts:
        raise UsageError(
            f"layers {first}-{last} of {manifest.family} have no experts",
            "choose layers that include a Mixture-of-Experts layer",
        )
    fixed = _fixed_items(manifest, request, host, first, last)
    top_k = max(entry.top_k for entry in experts)
    slot_bytes = max(entry.record.stride_bytes for entry in experts)
    total = sum(entry.num_experts for entry in experts)
    landing = min(top_k + request.guess_width, total)
    fixed.append(
        PlanItem("landing slots", landing * slot_bytes, f"{top_k} picks + {landing - top_k} guesses being read")
    )
    needed = sum(item.num_bytes for item in fixed)
    rest = request.budget_bytes - needed
    if rest < 0:
        raise refusal(request, needed, lambda other: smallest_budget(manifest, other, host))
    hot = min(rest // slot_bytes, total - landing)
    fixed.append(PlanItem("hot tier", rest, f"{hot} of {total} experts kept: the rest of the cap"))
    return Plan(
        budget_bytes=request.budget_bytes,
        items=tuple(fixed),
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
        top_k=top_k,
        num_experts_total=total,
        compute_dtype=request.compute_dtype,
    )


def smallest_budget(manifest: Manifest, request: PlanRequest, host: HostCosts) -> int:
    """The smallest cap, in bytes, at which this request fits."""
    try:
        plan = make_plan(manifest, replace(request, budget_bytes=1), host)
    except PlanDoesNotFit as error:
        return error.needed_bytes
    return plan.budget_bytes


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
        widen = 1 if is_stored or request.compute_dtype != "float32" else 2
        total += field.num_bytes * widen
    return total


def _fixed_items(manifest: Manifest, request: PlanRequest, host: HostCosts, first: int, last: int) -> list[PlanItem]:
    ctx, kv = request.ctx_tokens, kv_bytes(manifest, request, first, last)
    recurrent = recurrent_bytes(manifest, first, last)
    rows = [
        PlanItem("runtime", host.runtime_bytes, "Python and its libraries, measured now"),
        PlanItem("growth", host.growth_bytes, "page tables, stacks, allocator: measured bound"),
        PlanItem("tokenizer", host.tokenizer_bytes, "measured while loading"),
        PlanItem(
            "resident weights",
            resident_bytes(manifest, request, first, last),
            f"layers {first}-{last} without experts" + (", norm and head" if last == manifest.num_layers - 1 else ""),
        ),
        PlanItem("KV cache", kv, f"{ctx} tokens in {request.kv}, {format_size(kv // max(ctx, 1))} a token"),
        PlanItem("recurrent state", recurrent, "one sequence, float32"),
        PlanItem(
            "scratch",
            scratch_bytes(manifest, request.compute_dtype, request.chunk_tokens, ctx, first, last),
            f"activations of {request.chunk_tokens} prompt tokens, logits",
        ),
        PlanItem("pool alignment", POOL_ALIGNMENT_BYTES, "the pool begins at a huge page"),
    ]
    rows += [PlanItem(name, num_bytes, "asked for") for name, num_bytes in request.extra_bytes]
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
        raise UsageError(
            "context, chunk and guess width count tokens and experts", "use --ctx and --chunk of 1 or more"
        )
    return first, last
