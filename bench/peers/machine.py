"""What a reader of the results must know of the machine and the checkout, as text.

Owns where each fact is found. Facts that are not there are left out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.loop_device import read_ahead_kb

from streamoe_engine.footprint import cgroup_limit_bytes, machine_memory
from streamoe_engine.sizes import format_size

ROOT = Path(__file__).parents[2]
_TOLD_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "asimddp", "i8mm")


def describe(model_folder: Path) -> dict[str, str]:
    """Facts by name, for the head of a results file."""
    limit_bytes = cgroup_limit_bytes()
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "cpu": f"{cpu_name()}, {os.cpu_count()} cores, {' '.join(cpu_flags())}",
        "memory": format_size(machine_memory().total_bytes),
        "memory limit above": format_size(limit_bytes) if limit_bytes else "",
        "kernel": f"{platform.system()} {platform.release()}",
        "huge pages": _first_line(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "python": platform.python_version(),
        "model's disk": f"read-ahead {read_ahead_kb(model_folder)} KiB",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
    return {name: text for name, text in facts.items() if text}


def commit() -> str:
    """The checkout's commit, with a + when files differ from it; "" outside a checkout."""
    done = _git("rev-parse", "--short", "HEAD")
    return f"{done}{'+' if _git('status', '--porcelain') else ''}" if done else ""


def cpu_name() -> str:
    """The CPU's name as the kernel has it."""
    match = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match[1] if match else platform.machine()


def cpu_flags() -> list[str]:
    """Those of the instruction sets that decide about speed here, that the CPU has."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    present = set(match[1].split()) if match else set()
    return [flag for flag in _TOLD_FLAGS if flag in present]


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _first_line(path: Path) -> str:
    return path.read_text().splitlines()[0] if path.exists() else ""


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
