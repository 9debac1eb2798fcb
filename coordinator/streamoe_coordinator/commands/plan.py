"""`streamoe plan`: what a cap would be used for, without opening anything."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import typer

from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.plan import Plan
from streamoe_engine.sizes import parse_size
from streamoe_node import shared_options
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags, band_options, smallest_budget

from .. import options
from ..edge import SCHEMA, print_json, reported
from ..report import plan_json, refusal_json


def plan(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    budgets: options.Budgets = None,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    layers: options.Layers = None,
    chunk: shared_options.Chunk = None,
    guess_width: shared_options.GuessWidth = None,
    backend: options.Backend = None,
    head: options.Head = None,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what a cap would be used for, item by item; exit code 3 when the model does not fit it."""
    with reported(as_json):
        from streamoe_engine.band import plan_for

        # The first two for their memory alone, 10 MiB: a plan that fits must fit a chat at the terminal too.
        from ..terminal import chat, editor  # noqa: F401
        from ..text import load_text

        texts = [text for text in (budget, *(budgets or "").split(",")) if text]
        caps = None if budgets is None else sorted({parse_size(text) for text in texts})
        folder = resolve_model(model, may_convert=yes)
        _, tokenizer_bytes = load_text(folder)
        flags = EngineFlags(
            texts[0] if texts else None, ctx, kv, layers, chunk, guess_width=guess_width, backend=backend, head=head
        )
        band = band_options(flags, folder, tokenizer_bytes, is_embedded=model is None)
        plans = [_try_plan(plan_for, folder, replace(band, budget_bytes=cap)) for cap in caps or [band.budget_bytes]]
        smallest = smallest_budget(folder, band)
        if as_json:
            objects = [_plan_object(entry, smallest) for entry in plans]
            print_json(objects[0] if caps is None else {"schema": SCHEMA, "plans": objects})
        else:
            _print(plans, smallest, is_comparison=caps is not None)
        if all(isinstance(entry, PlanDoesNotFit) for entry in plans):
            raise typer.Exit(PlanDoesNotFit.exit_code)


def _try_plan(plan_for: Any, folder: Any, band: Any) -> Plan | PlanDoesNotFit:
    try:
        made: Plan = plan_for(folder, band)
    except PlanDoesNotFit as error:
        return error
    return made


def _plan_object(entry: Plan | PlanDoesNotFit, smallest_bytes: int) -> dict[str, Any]:
    return plan_json(entry, smallest_bytes) if isinstance(entry, Plan) else refusal_json(entry)


def _print(plans: list[Plan | PlanDoesNotFit], smallest_bytes: int, *, is_comparison: bool) -> None:
    if not is_comparison and isinstance(plans[0], PlanDoesNotFit):
        print(f"error: {plans[0]}", file=sys.stderr)
        return
    from ..terminal.tables import print_plan, print_plans

    if is_comparison or isinstance(plans[0], PlanDoesNotFit):
        print_plans(plans, sys.stdout)
    else:
        print_plan(plans[0], sys.stdout, smallest_bytes)
