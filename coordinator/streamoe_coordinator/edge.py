"""The process's edge: errors become text or JSON and an exit code, here and nowhere else.

Owns the exit codes and the error's two forms. Refuses to know what was attempted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from streamoe_engine.errors import PlanDoesNotFit, StreamoeError

SCHEMA = 1
EXIT_CODES = "Exit codes: 0 done, 1 failure, 2 usage, 3 plan does not fit, 4 node unreachable, 130 stopped by Ctrl-C."
EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Run a command: a StreamoeError is printed ("error: ..." on stderr, or JSON on stdout) and ends the process with
    its exit code."""
    try:
        yield
    except StreamoeError as error:
        if as_json:
            print_json(error_json(error))
        else:
            print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        # Python gives signals back their default while it ends: one more Ctrl-C would take the exit code away.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("stopped", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from error
    except BrokenPipeError as error:
        # Whoever read stdout has gone (`| head`); Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILURE) from error


def error_json(error: StreamoeError) -> dict[str, Any]:
    """{"schema", "error": {"code", "message", "next_step", and the error's own figures}}."""
    figures = {name: value for name, value in vars(error).items() if isinstance(value, int | str)}
    if isinstance(error, PlanDoesNotFit):
        figures["short_bytes"] = error.short_bytes
    return {"schema": SCHEMA, "error": {"code": error.code, **figures}}


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout, in ASCII: no terminal setting can break it."""
    print(json.dumps(value), flush=True)
