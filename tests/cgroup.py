"""Commands run in a fresh memory control group, with the kernel's own count of what they cost.

Owns: making, limiting, reading and removing the group (cgroup v1 or v2), below this process's own group where
the kernel allows it, so that limits above still hold. Refuses to know what is run.

The kernel charges a group for anonymous memory, page cache (each page to the group that first read it) and kernel
memory. Files that other processes have read already cost a group nothing; `cold=True` empties those caches first.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from streamoe_engine.footprint import cgroup_folders

_LARGEST_CHARGE_BYTES = 2 * 1024**2  # a huge page, or page cache read ahead as one folio
_COULD_NOT_JOIN = 125
# The shell joins the group and becomes the command, so the harness's own pages are never charged to the group.
# A preexec_fn would fork the harness, pools and all, for the same end.
_JOIN_AND_EXEC = f'echo $$ > "$0/cgroup.procs" || exit {_COULD_NOT_JOIN}; exec "$@"'


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """What the kernel charges a group now, in bytes, and what it met so far.

    usage_bytes is all of it; peak_bytes its highest value. anonymous, cache (mapped or not) and kernel memory
    (page tables, slabs, stacks) are its parts. mapped_bytes is the part of cache that is mapped.
    """

    usage_bytes: int
    peak_bytes: int
    anonymous_bytes: int
    cache_bytes: int
    mapped_bytes: int
    kernel_bytes: int
    limit_hits: int
    oom_kills: int

    def has_met(self, limit_bytes: int) -> bool:
        """Whether the limit held the group down. Kernel 6.18 leaves v1's count of hits at 0, so a peak within the
        largest single charge of the limit tells as well."""
        return self.limit_hits > 0 or self.peak_bytes > limit_bytes - _LARGEST_CHARGE_BYTES


@dataclass(frozen=True, slots=True)
class CgroupRun:
    """One finished command. peak_bytes is the kernel's; anonymous_peak_bytes and cache_peak_bytes are the highest
    of samples sample_s apart, and so is peak_rss_bytes, the process's own VmHWM. met_limit: the group was held down by
    its limit (page cache gives way first). read_bytes came from storage, past or through the page cache."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int
    anonymous_peak_bytes: int
    cache_peak_bytes: int
    cache_bytes_end: int
    met_limit: bool
    oom_killed: bool
    read_bytes: int
    peak_rss_bytes: int


class Cgroup:
    """A fresh memory group; one owner closes it, which kills what still runs in it."""

    def __init__(self, limit_bytes: int | None) -> None:
        parent = _parent()
        assert isinstance(parent, Path), parent
        self.folder = parent / f"streamoe-test-{uuid.uuid4().hex[:12]}"
        self.folder.mkdir()
        self._is_v2 = (self.folder / "memory.current").exists()
        if limit_bytes is not None:
            self._limit(limit_bytes)

    def _limit(self, limit_bytes: int) -> None:
        v1 = {"memory.limit_in_bytes": limit_bytes, "memory.memsw.limit_in_bytes": limit_bytes}
        for name, value in ({"memory.max": limit_bytes, "memory.swap.max": 0} if self._is_v2 else v1).items():
            if (self.folder / name).exists():  # those of swap are absent where the kernel does not account it
                (self.folder / name).write_text(str(value))

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that joins the group, then becomes `argv`."""
        return ["/bin/sh", "-c", _JOIN_AND_EXEC, str(self.folder), *argv]

    def memory(self) -> GroupMemory:
        """What the kernel says of the group now."""
        return _memory_v2(self.folder) if self._is_v2 else _memory_v1(self.folder)

    def pids(self) -> list[int]:
        """The processes in the group."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def kill(self) -> None:
        """End every process in the group at once."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what still runs in the group and remove it."""
        deadline = time.monotonic() + 10
        while self.folder.exists():
            self.kill()
            try:
                self.folder.rmdir()
            except OSError:  # a killed process leaves its group a moment later
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A long-running command in its group; its streams are text pipes of `process`."""

    process: subprocess.Popen[str]
    group: Cgroup


@functools.cache
def unavailable_reason() -> str | None:
    """Why commands cannot be run in a group of their own here, or None: a text for pytest.skip."""
    parent = _parent()
    if isinstance(parent, str):
        return parent
    try:
        with Cgroup(None) as group:
            group.memory()
            probe = subprocess.run(group.command(["/bin/true"]), capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no memory cgroup can be made below {parent}: {error}"
    return f"no process can join a cgroup below {parent}: {probe.stderr}" if probe.returncode else None


def drop_caches() -> None:
    """Empty the machine's page cache as far as pages are clean and not mapped. Machine-global; needs root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def run_in_cgroup(
    argv: Sequence[str],
    limit_bytes: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout_s: float = 120.0,
    cold: bool = False,
    sample_s: float = 0.01,
) -> CgroupRun:
    """Run a command to its end in a fresh group. Raises subprocess.TimeoutExpired after timeout_s, all killed."""
    if cold:
        drop_caches()
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(Cgroup(limit_bytes))
        given, out, err = (stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(3))
        given.write(stdin or "")
        given.seek(0)
        process = subprocess.Popen(group.command(argv), stdin=given, stdout=out, stderr=err, env=env, cwd=cwd)
        peaks = _watch(process, group, timeout_s, sample_s)
        memory = group.memory()
        stdout, stderr = (_text(stream) for stream in (out, err))
    assert process.returncode != _COULD_NOT_JOIN, stderr
    return CgroupRun(
        returncode=process.returncode,
        stdout=stdout,
        stderr=stderr,
        peak_bytes=memory.peak_bytes,
        anonymous_peak_bytes=peaks.anonymous_bytes,
        cache_peak_bytes=peaks.cache_bytes,
        cache_bytes_end=memory.cache_bytes,
        met_limit=limit_bytes is not None and memory.has_met(limit_bytes),
        oom_killed=memory.oom_kills > 0,
        read_bytes=peaks.read_bytes,
        peak_rss_bytes=peaks.rss_bytes,
    )


@contextlib.contextmanager
def running_in_cgroup(
    argv: Sequence[str],
    limit_bytes: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[Running]:
    """A command running in a fresh group for the length of the block; killed, with all its children, at its end."""
    pipe = subprocess.PIPE
    with Cgroup(limit_bytes) as group:
        command = group.command(argv)
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env, cwd=cwd) as process:
            try:
                yield Running(process, group)
            finally:
                process.kill()


@dataclass(slots=True)
class _Peaks:
    anonymous_bytes: int = 0
    cache_bytes: int = 0
    rss_bytes: int = 0
    read_bytes: int = 0


def _watch(process: subprocess.Popen[bytes], group: Cgroup, timeout_s: float, sample_s: float) -> _Peaks:
    # Samples until the process ends. WNOWAIT leaves it a zombie, whose I/O counts can still be read, exact.
    peaks, deadline_s, proc = _Peaks(), time.monotonic() + timeout_s, Path("/proc", str(process.pid))
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline_s:
            group.kill()
            process.wait()
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        memory = group.memory()
        peaks.anonymous_bytes = max(peaks.anonymous_bytes, memory.anonymous_bytes)
        peaks.cache_bytes = max(peaks.cache_bytes, memory.cache_bytes)
        peaks.rss_bytes = max(peaks.rss_bytes, _named(proc / "status").get("VmHWM:", 0) * 1024)
        time.sleep(sample_s)
    peaks.read_bytes = _named(proc / "io")["read_bytes:"]
    process.wait()
    return peaks


def _text(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read()


def _parent() -> Path | str:
    # where groups can be made, or why nowhere
    folders = cgroup_folders() if sys.platform == "linux" else []
    if not folders:
        return "this system has no memory control groups"
    if (folders[0] / "memory.usage_in_bytes").exists():
        return folders[0]
    # v2: a group that holds processes cannot hand memory down, so take the nearest ancestor that does
    for folder in folders:
        control = folder / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split() and os.access(folder, os.W_OK):
            return folder
    return f"no writable cgroup above {folders[0]} hands the memory controller down"


def _memory_v1(folder: Path) -> GroupMemory:
    stat = _named(folder / "memory.stat")
    return GroupMemory(
        usage_bytes=_number(folder / "memory.usage_in_bytes"),
        peak_bytes=_number(folder / "memory.max_usage_in_bytes"),
        anonymous_bytes=stat["total_rss"],
        cache_bytes=stat["total_cache"],
        mapped_bytes=stat["total_mapped_file"],
        kernel_bytes=_number(folder / "memory.kmem.usage_in_bytes"),
        limit_hits=_number(folder / "memory.failcnt"),
        oom_kills=_named(folder / "memory.oom_control").get("oom_kill", 0),
    )


def _memory_v2(folder: Path) -> GroupMemory:
    stat, events = _named(folder / "memory.stat"), _named(folder / "memory.events")
    return GroupMemory(
        usage_bytes=_number(folder / "memory.current"),
        peak_bytes=_number(folder / "memory.peak"),
        anonymous_bytes=stat["anon"],
        cache_bytes=stat["file"],
        mapped_bytes=stat["file_mapped"],
        kernel_bytes=stat["kernel"],
        limit_hits=events["max"],
        oom_kills=events["oom_kill"],
    )


def _number(path: Path) -> int:
    return int(path.read_text())


def _named(path: Path) -> dict[str, int]:
    # "name value" or "name: value kB" lines; what is not a number is left out
    fields = (line.split() for line in path.read_text().splitlines())
    return {parts[0]: int(parts[1]) for parts in fields if len(parts) > 1 and parts[1].isdigit()}
