"""The process's own figures move as memory does, and agree with the kernel's count from outside."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import time
from pathlib import Path

import pytest

from streamoe_engine import footprint
from streamoe_engine.sizes import MIB
from tests import cgroup

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts by kind of memory")


def touched(num_bytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    fill(memory)
    return memory


def fill(memory: mmap.mmap) -> None:
    # By small pieces: the allocator may keep a source after its end, and then that would be counted too.
    piece = bytes(MIB // 16)
    for _ in range(len(memory) // len(piece)):
        memory.write(piece)


def test_total_is_the_sum_of_the_parts() -> None:
    assert footprint.Footprint(5, 7, 11).total_bytes == 23
    assert footprint.current().total_bytes > 5 * MIB


def test_anonymous_memory_comes_and_goes_and_the_peak_remembers() -> None:
    before = footprint.current()
    memory = touched(64 * MIB)
    during = footprint.current()
    memory.close()
    after = footprint.current()
    assert abs(during.anonymous_bytes - before.anonymous_bytes - 64 * MIB) < MIB
    assert abs(after.anonymous_bytes - before.anonymous_bytes) < MIB
    assert footprint.peak_bytes() >= during.total_bytes - MIB


@linux_only
def test_huge_pages_count_as_the_memory_they_are() -> None:
    before = footprint.current().anonymous_bytes
    memory = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    fill(memory)
    assert abs(footprint.current().anonymous_bytes - before - 64 * MIB) < 2 * MIB
    memory.close()


@linux_only
def test_mapped_file_pages_are_charged_in_full(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(32 * MIB))
    before = footprint.current()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert sum(view[::4096]) > 0
        during = footprint.current()
    assert during.file_bytes - before.file_bytes >= 32 * MIB


@linux_only
def test_page_tables_of_small_pages_count() -> None:
    before = footprint.current().page_table_bytes
    memory = mmap.mmap(-1, 256 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    fill(memory)
    assert footprint.current().page_table_bytes - before >= 240 * MIB // 512
    memory.close()


@linux_only
def test_shared_anonymous_memory_is_not_free() -> None:
    before = footprint.current().anonymous_bytes
    with mmap.mmap(-1, 16 * MIB) as shared:  # MAP_SHARED, which the kernel counts apart as shmem
        fill(shared)
        assert footprint.current().anonymous_bytes - before >= 16 * MIB


def test_asking_is_cheap_at_any_size() -> None:
    memory = touched(512 * MIB)
    started_s = time.process_time()  # not the wait for a busy processor
    for _ in range(20):
        footprint.current()
    assert (time.process_time() - started_s) / 20 < 0.002
    memory.close()


def test_machine_memory_is_the_machines() -> None:
    memory = footprint.machine_memory()
    assert memory.total_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < memory.available_bytes <= memory.total_bytes


# -- control groups -------------------------------------------------------------------------------------------------

_REPORT = """
import json, subprocess, sys
from streamoe_engine import footprint
held = bytearray(64 << 20)
if sys.argv[1] == "with a child":
    child = subprocess.Popen(["/bin/sleep", "30"])
now = footprint.current()
print(json.dumps({
    "anonymous": now.anonymous_bytes, "page_tables": now.page_table_bytes, "limit": footprint.cgroup_limit_bytes(),
    "group_peak": footprint.cgroup_peak_bytes(), "peak": footprint.peak_bytes(),
}), flush=True)
input()
"""


def reported(how: str, limit_bytes: int | None) -> tuple[dict[str, int | None], cgroup.GroupMemory]:
    if reason := cgroup.unavailable_reason():
        pytest.skip(reason)
    with cgroup.running_in_cgroup([sys.executable, "-c", _REPORT, how], limit_bytes) as running:
        assert running.process.stdout is not None
        return json.loads(running.process.stdout.readline()), running.group.memory()


@pytest.mark.cgroup
def test_the_process_and_the_kernel_count_the_same_memory() -> None:
    figures, group = reported("alone", 256 * MIB)
    assert figures["limit"] == 256 * MIB
    assert figures["anonymous"] is not None and abs(figures["anonymous"] - group.anonymous_bytes) < MIB
    assert figures["page_tables"] is not None and figures["page_tables"] <= group.kernel_bytes
    assert figures["group_peak"] is not None and 64 * MIB < figures["group_peak"] <= group.peak_bytes
    assert figures["peak"] is not None and figures["peak"] >= figures["group_peak"]


@pytest.mark.cgroup
def test_a_group_shared_with_others_is_not_this_processs_peak() -> None:
    figures, _ = reported("with a child", None)
    assert figures["group_peak"] is None
    assert figures["peak"] is not None and figures["peak"] > 64 * MIB


def group_files(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_the_tightest_limit_of_the_hierarchy_counts(tmp_path: Path) -> None:
    unlimited_v1 = group_files(tmp_path / "a", memory__limit_in_bytes="9223372036854771712\n")
    limited_v1 = group_files(tmp_path / "b", memory__limit_in_bytes=f"{3 * MIB}\n")
    unlimited_v2 = group_files(tmp_path / "c", memory__max="max\n")
    limited_v2 = group_files(tmp_path / "d", memory__max=f"{2 * MIB}\n")
    bare = group_files(tmp_path / "e")
    assert footprint.tightest_limit_bytes([]) is None
    assert footprint.tightest_limit_bytes([unlimited_v1, unlimited_v2, bare]) is None
    assert footprint.tightest_limit_bytes([unlimited_v1, limited_v1]) == 3 * MIB
    assert footprint.tightest_limit_bytes([limited_v2, unlimited_v2, bare]) == 2 * MIB
    assert footprint.tightest_limit_bytes([limited_v1, limited_v2]) == 2 * MIB


def proc_files(tmp_path: Path, groups: str, mounts: str) -> Path:
    return group_files(tmp_path / "proc", cgroup=groups, mountinfo=mounts)


def test_groups_are_found_on_a_unified_hierarchy(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    own = group_files(mount / "user.slice" / "app.scope")
    proc = proc_files(
        tmp_path,
        "0::/user.slice/app.scope\n",
        f"24 22 0:22 / /proc rw - proc proc rw\n30 23 0:26 / {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    )
    assert footprint.cgroup_folders(proc) == [own, own.parent, mount]


def test_groups_are_found_where_memory_has_a_hierarchy_of_its_own(tmp_path: Path) -> None:
    mount = tmp_path / "memory"
    own = group_files(mount / "job")
    proc = proc_files(
        tmp_path,
        "4:memory:/job\n3:cpu,cpuacct:/other\n0::/unified\n",
        f"34 31 0:31 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"35 31 0:32 / {mount} rw - cgroup cgroup rw,memory\n41 31 0:38 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n",
    )
    assert footprint.cgroup_folders(proc) == [own, mount]


@pytest.mark.parametrize(
    ("path", "root"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/../../host", "/"), ("/a", "/other")]
)
def test_inside_a_container_the_mount_point_is_the_own_group(tmp_path: Path, path: str, root: str) -> None:
    mount = group_files(tmp_path / "cgroup")
    proc = proc_files(tmp_path, f"0::{path}\n", f"30 23 0:26 {root} {mount} ro - cgroup2 cgroup rw\n")
    assert footprint.cgroup_folders(proc) == [mount]


def test_no_groups_where_the_system_has_none(tmp_path: Path) -> None:
    assert footprint.cgroup_folders(tmp_path / "no proc here") == []
    assert footprint.cgroup_folders(proc_files(tmp_path, "2:cpu:/\n", "22 1 0:21 / /proc rw - proc proc rw\n")) == []


def test_macos_struct_has_the_documented_layout() -> None:
    info = footprint.RusageInfoV4
    assert ctypes.sizeof(info) == 296
    assert (info.ri_phys_footprint.offset, info.ri_phys_footprint.size) == (72, 8)
    assert (info.ri_lifetime_max_phys_footprint.offset, info.ri_lifetime_max_phys_footprint.size) == (240, 8)
