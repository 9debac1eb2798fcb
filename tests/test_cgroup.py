"""The harness itself: what it counts, what it stops, and that it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamoe_engine.footprint import cgroup_folders
from streamoe_engine.sizes import KIB, MIB
from tests import cgroup

pytestmark = pytest.mark.cgroup


@pytest.fixture(autouse=True)
def _needs_a_cgroup() -> None:
    if reason := cgroup.unavailable_reason():
        pytest.skip(reason)


def python(program: str) -> list[str]:
    return [sys.executable, "-S", "-c", program]


def test_streams_exit_status_and_environment_pass_through(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['A'], os.getcwd(), input()); print('no', file=sys.stderr); sys.exit(3)"
    run = cgroup.run_in_cgroup(python(program), env={"A": "b"}, cwd=tmp_path, stdin="line\n")
    assert (run.returncode, run.stdout, run.stderr) == (3, f"b {tmp_path} line\n", "no\n")


def test_peak_is_the_commands_own_and_not_the_harnesses() -> None:
    held = bytearray(64 * MIB)
    run = cgroup.run_in_cgroup(["/bin/true"])
    assert len(held) > run.peak_bytes
    assert run.peak_bytes < 4 * MIB


def test_anonymous_memory_is_counted_after_it_is_freed() -> None:
    run = cgroup.run_in_cgroup(python("import time; x = bytearray(64 << 20); time.sleep(0.2); del x"))
    assert 64 * MIB < run.anonymous_peak_bytes <= run.peak_bytes < 84 * MIB
    assert 64 * MIB < run.peak_rss_bytes < 84 * MIB
    assert not run.oom_killed and not run.met_limit


def test_page_cache_of_a_cold_file_is_charged_and_its_bytes_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(32 * MIB))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    program = f"import time; f = open({str(path)!r}, 'rb', 0)\nwhile f.read(1 << 20): pass\ntime.sleep(0.1)"
    run = cgroup.run_in_cgroup(python(program))
    assert run.cache_bytes_end >= 32 * MIB and run.cache_peak_bytes >= 32 * MIB
    assert run.read_bytes >= 32 * MIB


def test_the_limit_holds_page_cache_down_without_killing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    run = cgroup.run_in_cgroup(["/bin/dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=40"], 16 * MIB)
    assert run.returncode == 0 and run.met_limit and not run.oom_killed
    assert 15 * MIB < run.peak_bytes <= 16 * MIB


def test_more_than_the_limit_is_killed() -> None:
    run = cgroup.run_in_cgroup(python("x = bytearray(64 << 20)"), 32 * MIB)
    assert run.returncode == -9 and run.oom_killed and run.met_limit
    assert run.peak_bytes <= 32 * MIB


def test_a_command_past_its_time_is_killed_with_its_children() -> None:
    started_s = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        cgroup.run_in_cgroup(["/bin/sh", "-c", "sleep 60 & sleep 60"], timeout_s=0.3)
    assert time.monotonic() - started_s < 10


def test_a_long_running_command_is_watched_then_ended() -> None:
    program = "x = bytearray(32 << 20); print('ready', flush=True); input()"
    with cgroup.running_in_cgroup(python(program), 128 * MIB) as running:
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "ready\n"
        memory = running.group.memory()
        assert running.group.pids() == [running.process.pid]
    assert 32 * MIB < memory.anonymous_bytes < 48 * MIB
    parts = memory.anonymous_bytes + memory.cache_bytes + memory.kernel_bytes
    assert abs(memory.usage_bytes - parts) < (os.cpu_count() or 1) * 256 * KIB + 256 * KIB
    assert not running.group.folder.exists()
    assert running.process.returncode == -9


def test_no_group_is_left_behind() -> None:
    with pytest.raises(FileNotFoundError), cgroup.Cgroup(None) as group:
        subprocess.run(["/no/such/command"], check=False)
    assert not group.folder.exists()
    assert not list(cgroup_folders()[0].glob("streamoe-test-*"))
