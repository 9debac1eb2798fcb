"""The node process's edge: errors become text or JSON and an exit code, here and nowhere else.

Owns the exit codes' sentence and the error's two forms. Refuses to know what was attempted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from streamoe_engine.errors import PlanDoesNotFit, StreamoeError

SCHEMA = 1
EXIT_CODES = (
    "Exit codes: 0 drained and closed, 1 failure, 2 usage, 3 plan does not fit, 130 stopped by a second Ctrl-C."
)


@contextmanager
def reported(as_json: bool) -> Iterator[None]:
    """Run a command: a StreamoeError is printed ("error: ..." on stderr, or JSON on stdout) and ends the process with
    its exit code."""
    try:
        yield
    except StreamoeError as error:
        message, next_step = error.message, error.next_step.replace("--sequences", "--max-sessions")
        if as_json:
            figures = {name: value for name, value in vars(error).items() if isinstance(value, int)}
            if isinstance(error, PlanDoesNotFit):
                figures["short_bytes"] = error.short_bytes
            fault = {"code": error.code, "message": message, "next_step": next_step, **figures}
            print_json({"event": "error", "error": fault})
        else:
            print(f"error: {message}" + (f"\n{next_step}" if next_step else ""), file=sys.stderr)
        raise typer.Exit(error.exit_code) from error


def print_json(value: dict[str, Any]) -> None:
    """One JSON line on stdout, in ASCII."""
    print(json.dumps({"schema": SCHEMA, **value}), flush=True)
