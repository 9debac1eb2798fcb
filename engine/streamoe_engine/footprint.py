"""What the operating system says this process costs.

Owns: the process's own memory by kind, its peak, the machine's memory, and the tightest control-group limit.
Refuses to know the plan these figures are held against, and what any allocator believes.

Linux figures come from /proc/self/status (20 us at any size; smaps_rollup walks the page tables). On macOS the
one figure is phys_footprint, the number Activity Monitor shows and the system kills by.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from .sizes import KIB

_PROC = Path("/proc/self")
_STATUS_LINE = re.compile(rb"^(\w+):\s+(\d+) kB$", re.MULTILINE)
_RUSAGE_INFO_V4 = 4  # <sys/resource.h> on macOS
# cgroup v1 writes "no limit" as the largest multiple of a page below 2**63, v2 writes "max".
_UNLIMITED_BYTES = 1 << 60
_LIMIT_FILES = ("memory.limit_in_bytes", "memory.max")
_PEAK_FILES = ("memory.max_usage_in_bytes", "memory.peak")


class RusageInfoV4(ctypes.Structure):
    """macOS's struct rusage_info_v4: 16 bytes of UUID, then 35 unsigned 64-bit counters, 296 bytes in all."""

    _fields_ = (
        ("ri_uuid", ctypes.c_uint8 * 16),
        ("times_and_sizes", ctypes.c_uint64 * 7),
        ("ri_phys_footprint", ctypes.c_uint64),
        ("starts_children_and_billing", ctypes.c_uint64 * 20),
        ("ri_lifetime_max_phys_footprint", ctypes.c_uint64),
        ("work_and_energy", ctypes.c_uint64 * 6),
    )


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of this process, in bytes.

    anonymous_bytes: memory no file backs, huge pages and swapped-out pages included (macOS: phys_footprint).
    file_bytes: resident pages of mapped files, in full even where other processes map them too; for this
    program that is the interpreter and its libraries (macOS: 0, phys_footprint leaves clean file pages out).
    page_table_bytes: the tables that map all this (macOS: 0, part of phys_footprint).

    A control group charges more than the sum: other kernel memory, and page cache of files read but not mapped.
    """

    anonymous_bytes: int
    file_bytes: int
    page_table_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of the three parts."""
        return self.anonymous_bytes + self.file_bytes + self.page_table_bytes


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Physical memory of the machine, and what can be had now without swapping, in bytes."""

    total_bytes: int
    available_bytes: int


def current() -> Footprint:
    """This process's footprint now. Takes about 20 us on Linux."""
    if sys.platform == "darwin":
        return Footprint(_rusage().ri_phys_footprint, 0, 0)
    return _footprint(_status())


def peak_bytes() -> int:
    """The highest cost of this process since it started, as the operating system counted it.

    macOS: the lifetime maximum of phys_footprint. Linux: the highest resident size (VmHWM: anonymous and mapped
    file pages) plus the page tables as they are now, or the control group's own peak where that is higher and
    cgroup_peak_bytes() has one.
    """
    if sys.platform == "darwin":
        return int(_rusage().ri_lifetime_max_phys_footprint)
    status = _status()
    own = status["VmHWM"] + status["HugetlbPages"] + status["VmPTE"]
    return max(own, _footprint(status).total_bytes, cgroup_peak_bytes() or 0)


def cgroup_peak_bytes() -> int | None:
    """The peak of this process's control group: anonymous memory, page cache and kernel memory, since the group
    was made. None unless this process is alone in it, for otherwise the figure is not about this process."""
    folders = cgroup_folders()
    if not folders or not _is_alone_in(folders[0]):
        return None
    return _first_number(folders[0], _PEAK_FILES)


def cgroup_limit_bytes() -> int | None:
    """The tightest memory limit of this process's control group and all above it (v1 or v2), or None."""
    return tightest_limit_bytes(cgroup_folders())


def machine_memory() -> MachineMemory:
    """The machine's physical memory, total and available."""
    import psutil

    memory = psutil.virtual_memory()
    return MachineMemory(int(memory.total), int(memory.available))


def cgroup_folders(proc: Path = _PROC) -> list[Path]:
    """The folders of the control groups that charge memory of process `proc`: its own first, then each parent
    up to the mount point. Empty where there are none, as on macOS."""
    try:
        groups, mounts = (proc / "cgroup").read_text(), (proc / "mountinfo").read_text()
    except OSError:
        return []
    for fstype, path in _memory_groups(groups):
        for root, mount in _cgroup_mounts(mounts, fstype):
            inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
            own = Path(mount, inside.strip("/"))
            # A container sees its host's path here but only its own group mounted: then that is the mount point.
            own = own if own.is_dir() and ".." not in own.parts else Path(mount)
            return [own, *(parent for parent in own.parents if parent.is_relative_to(mount))]
    return []


def tightest_limit_bytes(folders: list[Path]) -> int | None:
    """The smallest memory limit among control-group folders, or None where none sets one."""
    limits = [_first_number(folder, _LIMIT_FILES) for folder in folders]
    return min((limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES), default=None)


def _status() -> dict[str, int]:
    # name -> bytes; HugetlbPages is absent where the kernel is built without them
    lines = _STATUS_LINE.findall((_PROC / "status").read_bytes())
    return {"HugetlbPages": 0, **{name.decode(): int(kib) * KIB for name, kib in lines}}


def _footprint(status: dict[str, int]) -> Footprint:
    anonymous = sum(status[name] for name in ("RssAnon", "RssShmem", "VmSwap", "HugetlbPages"))
    return Footprint(anonymous, status["RssFile"], status["VmPTE"])


def _rusage() -> RusageInfoV4:
    info = RusageInfoV4()
    result = ctypes.CDLL(None).proc_pid_rusage(os.getpid(), _RUSAGE_INFO_V4, ctypes.byref(info))
    assert result == 0, "a process can always ask about itself"
    return info


def _memory_groups(text: str) -> list[tuple[str, str]]:
    # (file system type, path) of the groups that may charge memory: a v1 hierarchy wins where both are mounted
    lines = [line.split(":", 2) for line in text.splitlines()]
    v1 = [("cgroup", path) for _, controllers, path in lines if "memory" in controllers.split(",")]
    return v1 + [("cgroup2", path) for number, controllers, path in lines if number == "0" and not controllers]


def _cgroup_mounts(text: str, fstype: str) -> list[tuple[str, str]]:
    # mountinfo: id parent device ROOT MOUNT options... - TYPE source SUPER-OPTIONS
    found = []
    for line in text.splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind == fstype and (kind == "cgroup2" or "memory" in options.split(",")):
            root, mount = fields.split(" ")[3:5]
            found.append((root, mount))
    return found


def _first_number(folder: Path, names: tuple[str, ...]) -> int | None:
    for name in names:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _is_alone_in(folder: Path) -> bool:
    try:
        processes = (folder / "cgroup.procs").read_text().split()
        return processes == [str(os.getpid())] and not any(entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return False
