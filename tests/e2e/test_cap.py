"""Promise 1: the whole chat program lives within its cap, by the kernel's count, page cache included."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine.checkpoint import convert
from streamoe_engine.sizes import GIB, MIB, format_size
from tests.cgroup import CgroupRun, run_in_cgroup, unavailable_reason

pytestmark = [
    pytest.mark.cgroup,
    pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or ""),
]
PROMPT = "Explain gravity to a child."


def chat(
    folder: Path, budget: int, limit: int | None, *options: str, tokens: int = 48, cold: bool = False
) -> CgroupRun:
    argv = [sys.executable, "-m", "streamoe_coordinator", "chat", str(folder), "--budget", f"{budget}B"]
    argv += ["--prompt", PROMPT, "--max-tokens", str(tokens), "--json", *options]
    run = run_in_cgroup(argv, limit, cold=cold, timeout_s=280)
    assert run.returncode == 0, run.stderr
    return run


def smallest_budget(folder: Path, *options: str) -> int:
    argv = [sys.executable, "-m", "streamoe_coordinator", "plan", str(folder), "--budget", "64GiB", "--json", *options]
    return int(json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["smallest_budget_bytes"])


def cached_pages(path: Path) -> int:
    """Pages of a file in the page cache now."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        vector = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        address = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), vector) == 0, ctypes.get_errno()
    return sum(page & 1 for page in vector)


def forget(folder: Path) -> None:
    """Drop record and resident files from the page cache, so that what is there afterwards was put there by the run."""
    for path in [*folder.rglob("*.records"), *folder.rglob("*.safetensors")]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def test_the_embedded_chat_stays_under_its_cap(embedded_folder: Path) -> None:
    budget = smallest_budget(embedded_folder, "--head", "resident") + 12 * MIB  # room for about a third of the experts
    forget(embedded_folder)
    free, held = chat(embedded_folder, budget, None), chat(embedded_folder, budget, budget)
    assert free.peak_bytes <= budget, f"{format_size(free.peak_bytes)} of {format_size(budget)}"
    assert held.peak_bytes <= budget
    assert not held.oom_killed
    assert sum(cached_pages(path) for path in embedded_folder.rglob("*.records")) * mmap.PAGESIZE <= MIB
    answers = [json.loads(run.stdout) for run in (free, held)]
    assert answers[0]["token_ids"] == answers[1]["token_ids"]
    assert sum(layer["miss"] + layer["wasted"] for layer in answers[0]["layers"]) > 0
    assert answers[0]["peak_bytes"] <= budget


def test_a_streamed_head_stays_under_the_smallest_cap(embedded_folder: Path) -> None:
    budget, resident = (smallest_budget(embedded_folder, "--head", head) for head in ("streamed", "resident"))
    assert budget < resident
    forget(embedded_folder)
    run = chat(embedded_folder, budget, budget, "--head", "streamed", tokens=16)
    answer = json.loads(run.stdout)
    assert run.peak_bytes <= budget, f"{format_size(run.peak_bytes)} of {format_size(budget)}"
    assert not run.met_limit
    assert "output head" in {item["name"] for item in answer["plan"]["items"]}
    assert answer["read_bytes"] > sum(layer["bytes_read"] for layer in answer["layers"])
    assert cached_pages(embedded_folder / "resident/tail.safetensors") == 0


@pytest.mark.slow
def test_a_model_larger_than_its_cap_uses_the_cap(tmp_path: Path) -> None:
    """A 1.9 GB model at 1 GiB, cold: at most the cap, and at least 92 % of it."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "bench/make_synthetic.py", "--preset", "mid", "--format", "mlx"]
    subprocess.run([*command, "--out", str(tmp_path / "source")], cwd=root, check=True)
    folder = tmp_path / "model"
    convert(tmp_path / "source", folder)
    forget(folder)
    for limit in (2 * GIB, GIB):
        run = chat(folder, GIB, limit, tokens=32, cold=True)
        assert not run.oom_killed
        assert run.peak_bytes <= GIB
        assert run.peak_bytes >= 0.92 * GIB, format_size(run.peak_bytes)
    assert sum(cached_pages(path) for path in folder.rglob("*.records")) * mmap.PAGESIZE <= MIB
