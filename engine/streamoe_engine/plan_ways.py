"""The refusal's wording: what is short, and changes that were planned before they are suggested. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .errors import PlanDoesNotFit
from .plan_types import PlanRequest
from .sizes import format_size, size_argument

Needed = Callable[[PlanRequest], int]
_MOST_WAYS = 3


def refusal(request: PlanRequest, needed: int, needed_of: Needed) -> PlanDoesNotFit:
    """The error for a request that needs `needed` bytes; needed_of plans a changed request."""
    cap = request.budget_bytes
    ways = [f"--budget {size_argument(needed)}", *_changes_that_fit(request, needed, needed_of)]
    return PlanDoesNotFit(
        f"needs {format_size(needed)} ({needed} B), the cap is {format_size(cap)} ({cap} B): "
        f"short by {format_size(needed - cap)}",
        "try " + ", or ".join(ways[:_MOST_WAYS]),
        needed_bytes=needed,
        cap_bytes=cap,
    )


def _changes_that_fit(request: PlanRequest, needed: int, needed_of: Needed) -> list[str]:
    """Single changes that make it fit, with what each frees; where none does, all of them if they do."""
    changes = _changes(request)
    fitting = []
    for flag, changed in changes:
        freed = needed - needed_of(changed)
        if needed - freed <= request.budget_bytes:
            fitting.append(f"{flag} (frees {format_size(freed)})")
    if fitting or not changes:
        return fitting
    together, flags = request, []
    for flag, changed in changes:
        together = replace(together, **_difference(request, changed))
        flags.append(flag)
    together_flags = [flag for number, flag in enumerate(flags) if flag.split()[0] not in _names(flags[number + 1 :])]
    return [" ".join(together_flags)] if needed_of(together) <= request.budget_bytes else []


def _changes(request: PlanRequest) -> list[tuple[str, PlanRequest]]:
    """Smaller requests, mildest first."""
    changes = [
        (f"--sequences {fewer}", replace(request, sequences=fewer))
        for fewer in sorted({request.sequences // 2, 1}, reverse=True)
        if 1 <= fewer < request.sequences
    ]
    changes += [
        (f"--ctx {ctx}", replace(request, ctx_tokens=ctx))
        for ctx in (request.ctx_tokens // 2, request.ctx_tokens // 4, request.ctx_tokens // 8)
        if ctx >= 256
    ]
    if request.kv == "f32":
        changes.append(("--kv f16", replace(request, kv="f16")))
    if request.chunk_tokens > 4:
        changes.append(("--chunk 4", replace(request, chunk_tokens=4)))
    if request.guess_width:
        changes.append(("--guess-width 0", replace(request, guess_width=0)))
    if request.head == "resident":
        changes.append(("--head streamed", replace(request, head="streamed")))
    return changes


def _difference(before: PlanRequest, after: PlanRequest) -> dict[str, Any]:
    names = ("sequences", "ctx_tokens", "kv", "chunk_tokens", "guess_width", "head")
    return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}


def _names(flags: list[str]) -> set[str]:
    return {flag.split()[0] for flag in flags}
