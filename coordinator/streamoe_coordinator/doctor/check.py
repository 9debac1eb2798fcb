"""The noun of the doctor: one thing looked at, what was measured, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
Group = Literal["host", "memory", "disk", "model", "arithmetic", "network", "nodes"]


@dataclass(frozen=True, slots=True)
class Check:
    """One result. measured: the finding with its figures. fix: one sentence, "" where all is well.

    warn: it works, slower or with less room than it could. fail: it does not work, or cannot be relied on.
    """

    group: Group
    name: str
    status: Status
    measured: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert (self.status == "ok") == (self.fix == ""), (
            f"{self.name}: a fix belongs to what is not well, and only there"
        )


def graded(group: Group, name: str, measured: str, *, fail: str = "", warn: str = "") -> Check:
    """The check with the graver of two fixes given: fail before warn, ok where both are ""."""
    if fail:
        return Check(group, name, "fail", measured, fail)
    return Check(group, name, "warn" if warn else "ok", measured, warn)
