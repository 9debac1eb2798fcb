"""verify_folder finds every way in which a folder can differ from its manifest, and names the file and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamoe_engine.checkpoint import Progress, convert, verify_folder
from streamoe_engine.errors import (
    FormatVersionUnknown,
    ModelFileCorrupt,
    ModelFileMissing,
    ModelFileWrongSize,
    NotAModelFolder,
)
from tests.checkpoints import write_checkpoint

NAMES = [
    "config.json",
    "tokenizer.json",
    "resident/layer-0001.safetensors",
    "resident/tail.safetensors",
    "experts/layer-0003.records",
    "embedding.records",
    "vision/vision.safetensors",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    convert(write_checkpoint(tmp_path / "source", "qwen3_5_moe", vision=True), tmp_path / "model")
    return tmp_path / "model"


def test_a_whole_folder_passes_and_reports_every_byte(folder: Path) -> None:
    seen: list[Progress] = []
    manifest = verify_folder(folder, seen.append)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    assert seen[-1].done_bytes == seen[-1].total_bytes == total
    assert {progress.part for progress in seen} == set(manifest.files)
    assert set(manifest.files) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {"manifest.json"}


@pytest.mark.parametrize("name", NAMES)
def test_one_flipped_bit_is_found(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileCorrupt, match=f"{name} .*{len(content)} B.* has SHA-256"):
        verify_folder(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_found(folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    (folder / name).unlink()
    with pytest.raises(ModelFileMissing, match=rf"{name} \({size} B\) is missing"):
        verify_folder(folder)


@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_is_found(folder: Path, change: int) -> None:
    path = folder / "experts" / "layer-0000.records"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size + change)
    with pytest.raises(ModelFileWrongSize, match=f"has {size + change} B, the manifest says {size} B"):
        verify_folder(folder)


def test_other_folders_are_told_apart(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAModelFolder):
        verify_folder(tmp_path / "source")
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(FormatVersionUnknown):
        verify_folder(folder)
