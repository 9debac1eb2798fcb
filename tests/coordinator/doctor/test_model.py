"""A model folder that lacks a file, or a byte of one, is found out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streamoe_coordinator.doctor.model import hashes_check, manifest_check, sizes_check
from streamoe_engine.manifest import MANIFEST_FILE, expert_file


@pytest.fixture
def folder(tiny_folder: Callable[..., tuple[Path, Path]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder("olmoe")[1], tmp_path / "model"))


def test_a_whole_folder_is_in_order(folder: Path) -> None:
    check, manifest = manifest_check(folder)
    assert check.status == "ok" and "olmoe, 4 layers" in check.measured
    assert manifest is not None
    assert sizes_check(folder, manifest).status == "ok"
    assert hashes_check(folder).status == "ok"


def test_a_folder_without_a_manifest_or_with_a_broken_one_fails(folder: Path, tmp_path: Path) -> None:
    check, manifest = manifest_check(tmp_path)
    assert check.status == "fail" and manifest is None and "convert" in check.fix
    (folder / MANIFEST_FILE).write_text("{")
    assert manifest_check(folder)[0].status == "fail"


def test_missing_and_short_files_fail_and_are_named(folder: Path) -> None:
    _, manifest = manifest_check(folder)
    assert manifest is not None
    (folder / expert_file(2)).unlink()
    check = sizes_check(folder, manifest)
    assert check.status == "fail" and check.measured.endswith("layer-0002.records is missing")
    path = folder / expert_file(1)
    path.write_bytes(path.read_bytes()[:-1])
    check = sizes_check(folder, manifest)
    assert "and 1 more" in check.measured


def test_one_changed_byte_is_found_by_hashes_only(folder: Path) -> None:
    path = folder / expert_file(1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    _, manifest = manifest_check(folder)
    assert manifest is not None and sizes_check(folder, manifest).status == "ok"
    check = hashes_check(folder)
    assert check.status == "fail" and "layer-0001.records" in check.measured
