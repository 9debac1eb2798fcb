"""`streamoe doctor`: what this machine and a model folder are like, each check with one fix."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from streamoe_engine.sizes import parse_size
from streamoe_node import shared_options
from streamoe_node.models import EMBEDDED_BUDGET, embedded_target, is_converted

from .. import options
from ..edge import EXIT_FAILURE, SCHEMA, print_json, reported


def doctor(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    verify: options.Verify = False,
    as_json: options.AsJson = False,
) -> None:
    """Check this machine, its memory and disk, and a model folder; exit code 1 when a check fails."""
    with reported(as_json):
        from ..doctor import run_checks

        embedded_bytes = EMBEDDED_BUDGET if model is None else None
        budget_bytes = embedded_bytes if budget is None else parse_size(budget)
        checks = run_checks(_folder(model), budget_bytes, verify=verify)
        is_ok = all(check.status != "fail" for check in checks)
        if as_json:
            print_json({"schema": SCHEMA, "ok": is_ok, "checks": [asdict(check) for check in checks]})
        else:
            for check in checks:
                # Plain lines, since a table would cut the paths that the findings name.
                print(f"{check.status:4}  {check.group:10}  {check.name}: {check.measured}")
                if check.fix:
                    print(f"{'':18}fix: {check.fix}")
        if not is_ok:
            raise typer.Exit(EXIT_FAILURE)


def _folder(model: Path | None) -> Path | None:
    # The embedded model is converted by the first chat, not by a check.
    if model is not None:
        return model
    target = embedded_target()
    return target if is_converted(target) else None
