"""Importing leaves page cache behind; giving it back leaves only what is mapped."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from streamoe_engine.library_cache import give_back_library_cache
from streamoe_engine.sizes import MIB
from tests import cgroup

_PROGRAM = """
import mmap, sys, types
from streamoe_engine.library_cache import give_back_library_cache
read, mapped = types.ModuleType("read"), open(sys.argv[2], "rb")
read.__file__ = sys.argv[1]
sys.modules["read"] = read
open(sys.argv[1], "rb").read()
view = mmap.mmap(mapped.fileno(), 0, access=mmap.ACCESS_READ)
assert sum(view[::4096]) >= 0
print("ready", flush=True); input()
print(give_back_library_cache(), flush=True); input()
"""


def cold_file(path: Path) -> Path:
    path.write_bytes(os.urandom(16 * MIB))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@pytest.mark.cgroup
def test_unmapped_pages_leave_the_group_and_mapped_ones_stay(tmp_path: Path) -> None:
    if reason := cgroup.unavailable_reason():
        pytest.skip(reason)
    read, mapped = (cold_file(tmp_path / name) for name in ("read", "mapped"))
    argv = [sys.executable, "-c", _PROGRAM, str(read), str(mapped)]
    with cgroup.running_in_cgroup(argv) as running:
        process = running.process
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = running.group.memory()
        process.stdin.write("\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) > 10
        after = running.group.memory()
    assert before.cache_bytes > 31 * MIB
    assert before.cache_bytes - after.cache_bytes > 15 * MIB
    assert after.mapped_bytes > 15 * MIB


def test_modules_without_a_file_of_their_own_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zipped_module.py").write_text("VALUE = 1\n")
    archive = shutil.make_archive(str(tmp_path / "modules"), "zip", tmp_path, "zipped_module.py")
    monkeypatch.syspath_prepend(archive)
    import zipped_module  # type: ignore[import-not-found]

    assert not os.path.exists(zipped_module.__file__)
    assert give_back_library_cache() > 0
