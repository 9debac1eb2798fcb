"""Conversions that are killed, that meet a full disk, or each other: nothing half-done is ever at the target."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from streamoe_engine.checkpoint import ConvertOptions, Progress, convert, verify_folder
from streamoe_engine.errors import ConversionFailed, UsageError
from streamoe_engine.sizes import MIB
from tests.checkpoints import write_checkpoint
from tests.engine.checkpoint.comparing import folder_hashes

# Converts and stops in the middle of a named file, telling so, until it is killed.
STOPPING = """
import sys, time
from pathlib import Path
from streamoe_engine.checkpoint import convert
def report(progress):
    if progress.part == sys.argv[3]:
        print("there", flush=True)
        time.sleep(600)
convert(Path(sys.argv[1]), Path(sys.argv[2]), report=report)
"""
LIMITED = """
import resource, sys
from pathlib import Path
from streamoe_engine.checkpoint.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
sys.exit(main(sys.argv[1:3]))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", "olmoe", shards=2)


@contextlib.contextmanager
def stopped_at(source: Path, target: Path, part: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STOPPING, str(source), str(target), part]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
            yield process
        finally:
            process.kill()


def parts_of(source: Path, target: Path, options: ConvertOptions | None = None) -> list[str]:
    """Convert; which files were worked on, in order, with a '+' before those that were there already."""
    seen: list[Progress] = []
    partial = target.with_name(target.name + ".partial")
    before = {path.relative_to(partial).as_posix(): stamp(path) for path in partial.rglob("*")}
    convert(source, target, options, report=seen.append)
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert all(earlier.done_bytes <= later.done_bytes for earlier, later in pairwise(seen))
    kept = {name for name, found in before.items() if (target / name).exists() and stamp(target / name) == found}
    return [("+" if name in kept else "") + name for name in dict.fromkeys(progress.part for progress in seen)]


def stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns


@pytest.mark.parametrize("part", ["config.json", "resident/layer-0002.safetensors", "experts/layer-0003.records"])
def test_killed_conversion_goes_on_where_it_was(source: Path, tmp_path: Path, part: str) -> None:
    target = tmp_path / "model"
    with stopped_at(source, target, part) as process:
        assert not target.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not target.exists()
    journal = (tmp_path / "model.partial" / "conversion.journal").read_text().splitlines()
    finished = len(journal) - 1
    parts = parts_of(source, target)
    assert [name.startswith("+") for name in parts] == [True] * finished + [False] * (len(parts) - finished)
    assert len(parts) - finished >= 1 and (finished >= 1) == (part != "config.json")
    assert not (tmp_path / "model.partial").exists()
    convert(source, tmp_path / "at-once")
    assert folder_hashes(target) == folder_hashes(tmp_path / "at-once")
    verify_folder(target)


def test_interrupt_by_the_caller_can_be_resumed(source: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.part == "embedding.records":
            raise KeyboardInterrupt

    target = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        convert(source, target, report=stop)
    assert not target.exists()
    assert "+tail" not in parts_of(source, target)
    verify_folder(target)


@pytest.mark.parametrize("change", ["source", "options", "journal"])
def test_another_source_or_other_options_start_over(source: Path, tmp_path: Path, change: str) -> None:
    target = tmp_path / "model"
    with stopped_at(source, target, "experts/layer-0002.records"):
        pass
    options = None
    if change == "source":
        shutil.rmtree(source)
        write_checkpoint(source, "olmoe", shards=2, seed=9)
    elif change == "options":
        options = ConvertOptions(bits=8)
    else:
        (tmp_path / "model.partial" / "conversion.journal").write_text("{not json\n")
    assert not any(name.startswith("+") for name in parts_of(source, target, options))
    convert(source, tmp_path / "at-once", options)
    assert folder_hashes(target) == folder_hashes(tmp_path / "at-once")


def test_finished_files_that_changed_size_and_strangers_are_not_kept(source: Path, tmp_path: Path) -> None:
    target, partial = tmp_path / "model", tmp_path / "model.partial"
    with stopped_at(source, target, "experts/layer-0002.records"):
        pass
    with (partial / "resident" / "layer-0001.safetensors").open("ab") as file:
        file.write(b"x")
    (partial / "stranger").mkdir()
    (partial / "stranger" / "file").write_text("x")
    with (partial / "conversion.journal").open("a") as journal:
        journal.write('{"name": "experts/lay')  # killed while it wrote a line
    parts = parts_of(source, target)
    assert "resident/layer-0001.safetensors" in parts and "+resident/layer-0002.safetensors" in parts
    assert not (target / "stranger").exists()
    verify_folder(target)


def test_two_conversions_into_one_target(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    with stopped_at(source, target, "experts/layer-0001.records"):
        with pytest.raises(ConversionFailed, match="another conversion is writing"):
            convert(source, target)
        convert(source, tmp_path / "other")
    convert(source, target)
    assert folder_hashes(target) == folder_hashes(tmp_path / "other")


def test_a_folder_that_is_not_ours_is_left_alone(source: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "model.partial" / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("years of work")
    with pytest.raises(UsageError, match="was not made by a conversion"):
        convert(source, tmp_path / "model")
    assert theirs.read_text() == "years of work"


def test_file_size_limit_is_named_with_its_place(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    limit = 100 * 1024  # a layer's records take 128 KiB
    command = [sys.executable, "-c", LIMITED, str(source), str(target), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    total = (tmp_path / "model.partial" / "experts" / "layer-0000.records").stat().st_size
    assert "experts/layer-0000.records failed at" in done.stderr and "File too large" in done.stderr
    assert total <= limit and "run the same command again" in done.stderr
    assert not target.exists()
    assert "+resident/tail.safetensors" in parts_of(source, target)
    verify_folder(target)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 MiB."""
    if os.geteuid() or sys.platform != "linux":
        pytest.skip("mounting a small file system needs root on Linux")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, left_bytes: int) -> Path:
    """Fill a file system until left_bytes are free."""
    stat = os.statvfs(folder)
    filler = folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - left_bytes)
    return filler


def test_room_is_checked_before_anything_is_written(source: Path, small_disk: Path) -> None:
    filler = fill(small_disk, 64 * MIB + 100_000)
    with pytest.raises(
        ConversionFailed, match=r"needs 6\d\.\d+ MiB \(64.00 MiB of it to spare\), 64\.\d+ MiB are free"
    ):
        convert(source, small_disk / "model")
    assert list(small_disk.iterdir()) == [filler]
    filler.unlink()
    convert(source, small_disk / "model")
    verify_folder(small_disk / "model")


def test_the_root_of_a_file_system_is_no_target(source: Path, small_disk: Path) -> None:
    with pytest.raises(UsageError, match="file system of its own"):
        convert(source, small_disk)


def test_disk_that_fills_up_on_the_way(source: Path, small_disk: Path) -> None:
    target, fillers = small_disk / "model", []

    def report(progress: Progress) -> None:
        if progress.part == "resident/layer-0001.safetensors" and not fillers:
            time.sleep(0.2)  # the writing thread ends what it has
            fillers.append(fill(small_disk, 300_000))

    with pytest.raises(ConversionFailed, match=r"failed at \d+ B of \d+ B: No space left on device \(.* free at"):
        convert(source, target, report=report)
    assert not target.exists()
    fillers[0].unlink()
    assert "+resident/tail.safetensors" in parts_of(source, target)
    verify_folder(target)
