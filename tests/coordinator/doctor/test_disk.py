"""Disk speeds are measured on real files; what cannot be a disk's speed is not reported as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamoe_coordinator.doctor.disk import (
    bandwidth_check,
    default_probe,
    direct_check,
    disk_checks,
    existing_part,
    space_check,
    speed_checks,
)
from streamoe_coordinator.doctor.disk_probe import (
    RECORD_BYTES,
    SCRATCH_BYTES,
    Pages,
    ReadSpeed,
    measure_files,
    measure_scratch,
    scratch_file,
    scratch_size,
)
from streamoe_engine.errors import ModelFileMissing
from streamoe_engine.sizes import GIB, MIB
from streamoe_engine.uncached import aligned_buffer
from tests.manifests import qwen36_manifest


def speed(gb_per_s: float, pages: Pages = "ordinary", is_direct: bool = True) -> ReadSpeed:
    return ReadSpeed(pages, 1, RECORD_BYTES, int(gb_per_s * 1e9), 1.0, is_direct)


def test_a_fresh_file_is_read_by_one_and_two_readers(tmp_path: Path) -> None:
    speeds = measure_scratch(tmp_path, seconds_each=0.05, scratch_bytes=8 * RECORD_BYTES)
    kinds = ("ordinary", "huge") if sys.platform == "linux" else ("ordinary",)
    assert [(one.pages, one.num_readers) for one in speeds] == [(pages, n) for pages in kinds for n in (1, 2)]
    assert all(one.num_bytes >= one.num_readers * RECORD_BYTES and one.seconds > 0 for one in speeds)
    assert not list(tmp_path.iterdir())


def test_the_scratch_file_is_whole_and_has_no_name(tmp_path: Path) -> None:
    with scratch_file(tmp_path, 20 * MIB) as file:
        assert not list(tmp_path.iterdir())
        buffer = aligned_buffer(20 * MIB)
        file.read_into(buffer, 0)
        assert all(any(buffer[at : at + 4096]) for at in range(0, 20 * MIB, MIB))


def test_a_failing_measurement_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large"):
        measure_scratch(tmp_path, scratch_bytes=1 << 62)
    assert not list(tmp_path.iterdir())


def test_a_killed_measurement_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from streamoe_coordinator.doctor.disk_probe import scratch_file\n"
        "print('ready', flush=True)\nwith scratch_file(Path(sys.argv[1]), 1 << 30): print('filled', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == ""
    assert not list(tmp_path.iterdir())


def test_existing_records_are_read_whole(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(os.urandom(3 * 20_480))
    speeds = measure_files(paths, 20_000, seconds_each=0.01)
    assert all(one.num_bytes % 20_480 == 0 and one.num_bytes > 0 for one in speeds)
    assert measure_files(paths, MIB) == []
    with pytest.raises(ModelFileMissing):
        measure_files([tmp_path / "c"], 20_000)


def test_an_implausible_speed_is_not_reported_as_the_disks(tmp_path: Path) -> None:
    checks = disk_checks(tmp_path, None, probe=lambda: [speed(90.0), speed(3.0, "huge")])
    rejected, accepted = checks[-2:]
    assert rejected.status == "warn" and rejected.measured.startswith("could not be measured: 90 GB/s")
    assert accepted.status == "ok" and accepted.measured.startswith("3.00 GB/s")


def test_a_slow_disk_is_a_warning_with_its_figure() -> None:
    check = bandwidth_check("huge", [speed(0.31, "huge"), speed(0.29, "huge")], "a fresh file")
    assert check.status == "warn" and "0.31 GB/s by 1" in check.measured and "faster disk" in check.fix


def test_reads_through_the_cache_are_a_warning() -> None:
    checks = speed_checks(lambda: [speed(2.0), speed(2.0, is_direct=False)], "a fresh file")
    assert checks[0] == direct_check(False) and checks[0].status == "warn"
    assert direct_check(True).status == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, where no file can be made")
def test_a_folder_that_cannot_be_written_is_not_measured() -> None:
    checks = speed_checks(lambda: measure_scratch(Path("/proc/self")), "a fresh file")
    assert [check.status for check in checks] == ["warn"]
    assert checks[0].measured.startswith("could not be measured")


def test_a_full_disk_is_not_measured(tmp_path: Path) -> None:
    _, probe = default_probe(tmp_path, None, free_bytes=10 * MIB)
    assert speed_checks(probe, "a fresh file")[0].measured == "could not be measured: the disk is nearly full"
    assert scratch_size(100 * MIB) == 0
    assert 0 < scratch_size(GIB) <= GIB // 4
    assert SCRATCH_BYTES - RECORD_BYTES < scratch_size(100 * GIB) <= SCRATCH_BYTES


def test_a_large_models_own_records_are_measured_and_a_small_ones_are_not(tmp_path: Path) -> None:
    manifest = qwen36_manifest()
    path = tmp_path / manifest.experts[0].file
    for entry in manifest.experts:
        (tmp_path / entry.file).parent.mkdir(exist_ok=True)
        (tmp_path / entry.file).touch()
    path.write_bytes(os.urandom(2 * RECORD_BYTES))
    source, probe = default_probe(tmp_path, manifest, free_bytes=0)
    assert source == "the model's records"
    assert all(one.record_bytes == RECORD_BYTES for one in probe())
    assert default_probe(tmp_path, None, free_bytes=GIB)[0] == f"a fresh file in {tmp_path}"


def test_room_is_only_asked_for_where_a_model_is_still_to_come(tmp_path: Path) -> None:
    assert space_check(tmp_path, 5 * GIB, needs_room=True).status == "warn"
    assert "15.00 GiB" in space_check(tmp_path, 5 * GIB, needs_room=True).fix
    assert space_check(tmp_path, 5 * GIB, needs_room=False).status == "ok"
    assert space_check(tmp_path, 50 * GIB, needs_room=True).status == "ok"


def test_a_models_folder_that_is_not_there_yet_is_measured_at_its_parent(tmp_path: Path) -> None:
    assert existing_part(tmp_path / "cache" / "models") == tmp_path
    assert existing_part(tmp_path) == tmp_path
