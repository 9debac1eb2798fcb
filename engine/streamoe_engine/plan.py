"""Dividing a cap: model facts + cap + context -> a Plan whose rows sum to the cap, or a refusal with ways out.

Owns the promise's arithmetic; a pure function of its arguments. Refuses to know MLX and files.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from .errors import UsageError
from .kv.formats import KV_ELEMENT_BYTES
from .manifest import TAIL_PART, ExpertLayer, Field, Manifest, layer_part
from .plan_head import StreamedHead, head_fields, head_layout
from .plan_scratch import COMPUTE_BYTES, Backend, scratch_bytes
from .plan_types import POOL_ALIGNMENT_BYTES, HostCosts, Plan, PlanItem, PlanRequest
from .plan_ways import refusal

# Where in its ring a window layer's newest row lies: two int64 of a snapshot.
WINDOW_PLACE_BYTES = 16

__all__ = ["HostCosts", "Plan", "PlanItem", "PlanRequest", "make_plan", "smallest_budget", "snapshot_bytes"]


def make_plan(manifest: Manifest, request: PlanRequest, host: HostCosts) -> Plan:
    """The plan of a band under a cap.

    Raises PlanDoesNotFit with what is needed, what is short and checked ways out; UsageError for layers that the
    model has not, a context over the model's, or counts below 1.
    """
    first, last = _checked_layers(manifest, request)
    experts = _experts(manifest, first, last)
    landing, needed = _landing_slots(experts, request), smallest_budget(manifest, request, host)
    if request.budget_bytes < needed:
        raise refusal(request, needed, lambda other: smallest_budget(manifest, other, host))
    head = _streamed_head(manifest, request, host)
    items = _fixed_items(manifest, request, host, head)
    rest = request.budget_bytes - sum(item.num_bytes for item in items)
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
        sequences=request.sequences,
        streamed_head=head,
    )


def smallest_budget(manifest: Manifest, request: PlanRequest, host: HostCosts) -> int:
    """The smallest cap, in bytes, at which this request fits. Raises UsageError as make_plan does."""
    heads: list[StreamedHead | None] = [None] if request.head != "streamed" or not _has_head(manifest, request) else []
    if request.head != "resident" and _has_head(manifest, request):
        heads.append(StreamedHead(head_layout(manifest)))
    return min(_needed_bytes(manifest, request, host, head) for head in heads)


def _needed_bytes(manifest: Manifest, request: PlanRequest, host: HostCosts, head: StreamedHead | None) -> int:
    return sum(item.num_bytes for item in _fixed_items(manifest, request, host, head))


def _has_head(manifest: Manifest, request: PlanRequest) -> bool:
    return _checked_layers(manifest, request)[1] == manifest.num_layers - 1


def _streamed_head(manifest: Manifest, request: PlanRequest, host: HostCosts) -> StreamedHead | None:
    """How a request that fits has its head: None for resident. What "auto" has room for is kept."""
    if request.head == "resident" or not _has_head(manifest, request):
        return None
    head = StreamedHead(head_layout(manifest))
    if request.head == "streamed":
        return head
    if _needed_bytes(manifest, request, host, None) <= request.budget_bytes:
        return None
    rest = request.budget_bytes - _needed_bytes(manifest, request, host, head)
    block = head.layout.block_bytes
    return replace(head, kept_blocks=min(rest // (block + page_table_bytes(block)), head.layout.num_blocks - 1))


def page_table_bytes(num_bytes: int) -> int:
    """Page tables for num_bytes of memory: 8 bytes a 4 KiB page, also kept in reserve under huge pages."""
    return -(-num_bytes // 512)


def kv_bytes(manifest: Manifest, request: PlanRequest, first: int, last: int) -> int:
    """Keys and values of one sequence in layers first..last for the whole context; a window layer keeps its window
    and a chunk.
    """
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


def snapshot_bytes(manifest: Manifest, request: PlanRequest, position: int) -> int:
    """The most bytes of a snapshot of one sequence of the request's layers after `position` tokens: num_bytes of
    state_snapshot.StateSnapshot. Raises UsageError for layers that the model has not.
    """
    first, last = _checked_layers(manifest, request)
    if position == 0:
        return 0
    windows = sum(state.kind == "window" for state in manifest.states[first : last + 1])
    at_position = replace(request, ctx_tokens=position)
    whole = kv_bytes(manifest, at_position, first, last) + recurrent_bytes(manifest, first, last)
    return whole + windows * WINDOW_PLACE_BYTES


def resident_bytes(
    manifest: Manifest, request: PlanRequest, first: int, last: int, *, has_streamed_head: bool = False
) -> int:
    """Weights kept in memory: the layers without their experts, and norm and head in the last band.

    Quantised matrices and their scales stay as stored; other weights take the compute type. A streamed head's
    matrix is left out.
    """
    parts = resident_parts(manifest, first, last, has_streamed_head=has_streamed_head)
    return sum(_held_bytes(fields, request) for fields in parts.values())


def resident_parts(
    manifest: Manifest, first: int, last: int, *, has_streamed_head: bool
) -> dict[str, tuple[Field, ...]]:
    """The tensors that stay in memory, by part: of layers first..last, of the final norm and of a resident head."""
    names = [layer_part(layer) for layer in range(first, last + 1)]
    names += [TAIL_PART] if last == manifest.num_layers - 1 else []
    elsewhere = set(head_fields(manifest)) if has_streamed_head else set()
    return {name: tuple(field for field in manifest.resident[name] if field not in elsewhere) for name in names}


def _held_bytes(fields: tuple[Field, ...], request: PlanRequest) -> int:
    quantised = {field.name.rpartition(".")[0] for field in fields if field.name.endswith(".scales")}
    total = 0
    for field in fields:
        is_stored = field.dtype not in ("BF16", "F16") or field.name.rpartition(".")[0] in quantised
        widen = 1 if is_stored or _is_for_kernels(field, request.backend) or request.compute_dtype != "float32" else 2
        total += field.num_bytes * widen
    return total


def _is_for_kernels(field: Field, backend: Backend) -> bool:
    """Whether the C kernels take this matrix of plain numbers as it is stored."""
    if backend != "kernel-linears":
        return backend == "kernels" and len(field.shape) == 2
    # A router's may be a parameter of the routing module itself, which MLX multiplies: counted as if it were.
    is_linear = field.name.endswith(".weight") and not field.name.endswith(("gate.weight", "router.weight"))
    return is_linear and len(field.shape) == 2 and field.shape[1] % 32 == 0


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


def _fixed_items(
    manifest: Manifest, request: PlanRequest, host: HostCosts, head: StreamedHead | None
) -> list[PlanItem]:
    """Every row but the hot tier."""
    first, last = _checked_layers(manifest, request)
    experts = _experts(manifest, first, last)
    landing, kv = _landing_slots(experts, request), kv_bytes(manifest, request, first, last)
    held = "one sequence" if request.sequences == 1 else f"{request.sequences} sequences"
    has_head = last == manifest.num_layers - 1
    rows = [
        PlanItem("runtime", host.runtime_bytes, "Python and its libraries, measured now"),
        PlanItem("tokenizer", host.tokenizer_bytes, "measured while loading"),
        PlanItem(
            "resident weights",
            resident_bytes(manifest, request, first, last, has_streamed_head=head is not None),
            f"layers {first}-{last} without experts"
            + ("" if not has_head else ", norm" if head else ", norm and head"),
        ),
        *([] if head is None else [_head_item(head)]),
        PlanItem("KV cache", kv * request.sequences, _kv_why(request, kv)),
        PlanItem("recurrent state", recurrent_bytes(manifest, first, last) * request.sequences, f"{held}, float32"),
        PlanItem(
            "scratch",
            scratch_bytes(
                manifest, request.backend, request.chunk_tokens, request.ctx_tokens, first, last, request.sequences
            ),
            f"activations of {request.chunk_tokens} prompt tokens, logits",
        ),
        *(PlanItem(name, num_bytes, "asked for") for name, num_bytes in request.extra_bytes),
        PlanItem("landing slots", landing * _slot_bytes(experts), f"{landing} records being read or just used"),
    ]
    system = page_table_bytes(sum(row.num_bytes for row in rows)) + POOL_ALIGNMENT_BYTES + host.growth_bytes
    rows.insert(1, PlanItem("system", system, "page tables, stacks, alignment, code not loaded yet"))
    return [row for row in rows if row.num_bytes]


def _head_item(head: StreamedHead) -> PlanItem:
    layout, kept = head.layout, head.kept_blocks
    which = f"{kept} of {layout.num_blocks} blocks kept, the others" if kept else "its blocks"
    why = f"the cap has no room for it: {which} are read for each token, {layout.block_rows} words at a time"
    return PlanItem("output head", head.num_bytes + POOL_ALIGNMENT_BYTES, why)


def _kv_why(request: PlanRequest, kv: int) -> str:
    many = f"{request.sequences} sequences of " if request.sequences > 1 else ""
    return f"{many}{request.ctx_tokens} tokens, {request.kv}: {kv // request.ctx_tokens} B each"


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
    if request.sequences < 1:
        raise UsageError(f"{request.sequences} sequences cannot be held", "ask for 1 or more")
    if min(request.ctx_tokens, request.chunk_tokens) < 1 or request.guess_width < 0:
        raise UsageError("context and chunk are at least 1 token", "use --ctx and --chunk of 1 or more")
    return first, last
