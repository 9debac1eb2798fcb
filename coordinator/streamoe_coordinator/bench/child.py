"""`streamoe bench run` in a process of its own, so that each configuration is planned and measured afresh.

Owns the child process and its answer. Refuses to know why it is run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamoe_engine.errors import MeasurementFailed, PlanDoesNotFit


@dataclass(frozen=True, slots=True)
class Refused:
    """The plan did not fit: the cap, and the smallest that would."""

    budget_bytes: int
    needed_bytes: int


def run_child(arguments: Sequence[str]) -> dict[str, Any] | Refused:
    """The JSON of `streamoe bench run ARGUMENTS`. Raises MeasurementFailed."""
    command = [sys.executable, "-m", "streamoe_coordinator", "bench", "run", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False)
    try:
        value: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        value = {}
    if done.returncode == 0 and "error" not in value and value:
        return value
    error = value.get("error", {})
    if done.returncode == PlanDoesNotFit.exit_code:
        return Refused(error["cap_bytes"], error["needed_bytes"])
    message = error.get("message", f"`{' '.join(command[2:])}` ended with exit code {done.returncode}")
    raise MeasurementFailed(message, error.get("next_step", ""))
