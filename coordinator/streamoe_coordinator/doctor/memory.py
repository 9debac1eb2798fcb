"""Whether the memory a user grants is there: on the machine, now, and within the limits set on this process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import psutil

from streamoe_engine.footprint import MachineMemory, cgroup_limit_bytes, machine_memory
from streamoe_engine.sizes import GIB, MIB, format_size

from .check import Check, graded
from .host import sysctl

_THP_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# The system and its own caches want some: a cap above this share of the machine ends in swap.
_SAFE_SHARE = 0.9
_SWAPPED_SHARE = 1 / 16


def memory_checks(budget_bytes: int | None) -> list[Check]:
    """All checks of the memory group. budget_bytes: the cap that is meant to be granted, None if not said."""
    machine = machine_memory()
    checks = [
        physical_check(budget_bytes, machine),
        available_check(budget_bytes, machine),
        swap_check(psutil.swap_memory().used, machine),
    ]
    if sys.platform == "darwin":
        return [*checks, wired_check(budget_bytes, int(sysctl("iogpu.wired_limit_mb") or 0) * MIB)]
    mode = _THP_MODE.read_text() if _THP_MODE.exists() else "[never]"
    return [*checks, group_limit_check(budget_bytes, cgroup_limit_bytes()), huge_pages_check(mode)]


def physical_check(budget_bytes: int | None, machine: MachineMemory) -> Check:
    """The cap against the machine's memory."""
    measured = format_size(machine.total_bytes) + _against(budget_bytes)
    budget, safe_bytes = budget_bytes or 0, int(machine.total_bytes * _SAFE_SHARE)
    lower = f"grant less than the machine has: --budget {_size_below(safe_bytes)}"
    return graded(
        "memory",
        "physical memory",
        measured,
        fail=lower if budget > machine.total_bytes else "",
        warn=lower if budget > safe_bytes else "",
    )


def available_check(budget_bytes: int | None, machine: MachineMemory) -> Check:
    """The cap against what can be had now without swapping."""
    short = (budget_bytes or 0) > machine.available_bytes
    fix = f"close other programs, or grant less: --budget {_size_below(machine.available_bytes)}"
    measured = format_size(machine.available_bytes) + _against(budget_bytes)
    return graded("memory", "available now", measured, warn=fix if short else "")


def swap_check(used_bytes: int, machine: MachineMemory) -> Check:
    """Memory that other programs already had to give up."""
    pressed = used_bytes > machine.total_bytes * _SWAPPED_SHARE
    fix = "close other programs: this machine is short of memory already"
    return graded("memory", "swap in use", format_size(used_bytes), warn=fix if pressed else "")


def group_limit_check(budget_bytes: int | None, limit_bytes: int | None) -> Check:
    """The cap against the tightest control-group limit, by which the kernel would end the process."""
    name = "control group limit"
    if limit_bytes is None:
        return graded("memory", name, "none")
    below = limit_bytes < (budget_bytes or 0)
    fix = f"raise the group's limit, or grant no more than it: --budget {_size_below(limit_bytes)}"
    return graded("memory", name, format_size(limit_bytes) + _against(budget_bytes), fail=fix if below else "")


def huge_pages_check(mode_text: str) -> Check:
    """Linux's transparent huge pages: "always [madvise] never". Direct reads into them are up to 2.5 times faster."""
    match = re.search(r"\[(\w+)\]", mode_text)
    mode = match[1] if match else "unknown"
    off = mode not in ("always", "madvise")
    fix = f"allow them, for up to 2.5 times faster reads: echo madvise | sudo tee {_THP_MODE}"
    return graded("memory", "transparent huge pages", mode, warn=fix if off else "")


def wired_check(budget_bytes: int | None, limit_bytes: int) -> Check:
    """macOS's limit of memory wired for the GPU; 0 is the system's own choice, about two thirds of the machine."""
    measured = "the system's default" if limit_bytes == 0 else format_size(limit_bytes) + _against(budget_bytes)
    below = 0 < limit_bytes < (budget_bytes or 0)
    fix = "let the system choose: sudo sysctl iogpu.wired_limit_mb=0"
    return graded("memory", "wired limit", measured, warn=fix if below else "")


def _against(budget_bytes: int | None) -> str:
    return "" if budget_bytes is None else f", cap {format_size(budget_bytes)}"


def _size_below(num_bytes: int) -> str:
    # the largest tenth of a GiB, or whole MiB, that does not pass num_bytes
    return f"{num_bytes * 10 // GIB / 10:g}GiB" if num_bytes >= GIB else f"{num_bytes // MIB}MiB"
