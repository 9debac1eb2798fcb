"""What is broken is refused with a type, a place and a figure, and nothing goes on half-way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from streamoe_engine.band import Band, BandOptions
from streamoe_engine.errors import (
    ContextFull,
    FormatVersionUnknown,
    ModelFileCorrupt,
    ModelFileMissing,
    ModelFileWrongSize,
    ModelFolderError,
    ModelNotSupported,
    NonFiniteLogits,
    NotAModelFolder,
    PlanDoesNotFit,
    ReadFailed,
    StateLost,
    UsageError,
)
from streamoe_engine.sizes import GIB
from tests.running import greedy, open_band

IDS = np.arange(1, 9, dtype=np.int32)


@pytest.fixture
def folder(tiny_folder: Callable[..., tuple[Path, Path]], tmp_path: Path) -> Path:
    """A model folder that a test may break."""
    return Path(shutil.copytree(tiny_folder("qwen3_moe")[1], tmp_path / "model"))


def open_roomy(folder: Path) -> Band:
    return Band.open(folder, BandOptions(budget_bytes=GIB, ctx_tokens=64))


def test_a_missing_record_file(folder: Path) -> None:
    (folder / "experts/layer-0002.records").unlink()
    with pytest.raises(ModelFileMissing, match=r"layer-0002\.records"):
        open_roomy(folder)


def test_a_truncated_record_file(folder: Path) -> None:
    path = folder / "experts/layer-0001.records"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(ModelFileWrongSize, match=f"{size - 1} B, the manifest says {size} B"):
        open_roomy(folder)


def test_a_bit_flip_in_resident_weights(folder: Path) -> None:
    path = folder / "resident/layer-0000.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    with pytest.raises(ModelFileCorrupt, match=r"layer-0000\.safetensors has SHA-256"):
        open_roomy(folder)


def test_a_changed_configuration(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace("512", "513"))
    with pytest.raises(ModelFileCorrupt, match=r"config\.json"):
        open_roomy(folder)


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_unknown_format_version(folder: Path) -> None:
    edit_manifest(folder, format_version=99)
    with pytest.raises(FormatVersionUnknown, match="format version 99, this program reads 1"):
        open_roomy(folder)


def test_an_unknown_family(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "no_such_moe"}
    (folder / "config.json").write_text(json.dumps(config))
    data = (folder / "config.json").read_bytes()
    import hashlib

    files = json.loads((folder / "manifest.json").read_text())["files"]
    files["config.json"] = {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(folder, files=files)
    with pytest.raises(ModelNotSupported, match="no_such_moe"):
        open_roomy(folder)


def test_a_manifest_that_is_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": "streamoe-model", "format_version": 1}')
    with pytest.raises(ModelFolderError, match="lacks a part of a manifest"):
        open_roomy(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(NotAModelFolder):
        open_roomy(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ModelFolderError, match="not JSON"):
        open_roomy(folder)
    with pytest.raises(NotAModelFolder, match=r"no manifest\.json"):
        open_roomy(folder / "experts")


def test_a_cap_that_is_too_small_touches_no_weight(folder: Path) -> None:
    shutil.rmtree(folder / "resident")
    shutil.rmtree(folder / "experts")
    with pytest.raises(PlanDoesNotFit) as caught:
        Band.open(folder, BandOptions(budget_bytes=1000, ctx_tokens=64))
    assert caught.value.short_bytes == caught.value.needed_bytes - 1000


def test_a_symlinked_folder_opens(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    with open_band(tmp_path / "link") as linked:
        tokens = greedy(linked, IDS.tolist(), 5)
    with open_band(folder) as plain:
        assert greedy(plain, IDS.tolist(), 5) == tokens


def test_a_read_that_fails_ends_the_sequence_and_not_the_band(folder: Path) -> None:
    with open_band(folder) as band:
        expected = greedy(band, IDS.tolist(), 4)
    path = folder / "experts/layer-0003.records"
    whole = path.read_bytes()
    with open_band(folder) as band:
        os.truncate(path, 0)
        state = band.new_state()
        with pytest.raises(ReadFailed, match=r"layer-0003\.records") as caught:
            band.run(state, IDS)
        assert caught.value.length > 0
        with pytest.raises(StateLost):
            band.run(state, IDS[:1])
        with open(path, "r+b") as file:
            file.write(whole)
        assert greedy(band, IDS.tolist(), 4) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_raise(folder: Path, value: float) -> None:
    with open_band(folder) as band:
        norm = band._parts.layers._middle._inner.norm
        norm.weight = mx.full(norm.weight.shape, value)
        with pytest.raises(NonFiniteLogits, match="position 7"):
            band.run(band.new_state(), IDS)


def test_misuse_is_refused_before_computing(folder: Path) -> None:
    with open_band(folder, ctx_tokens=10, chunk_tokens=8) as band:
        state = band.new_state()
        with pytest.raises(UsageError, match="one sequence"):
            band.new_state()
        with pytest.raises(UsageError, match="9 tokens at once"):
            band.run(state, np.arange(9))
        with pytest.raises(UsageError, match="token ids 256 to 256 are not within the vocabulary of 256"):
            band.run(state, np.array([256]))
        band.run(state, IDS)
        with pytest.raises(ContextFull, match="11 tokens do not fit the planned context of 10"):
            band.run(state, IDS[:3])
        band.run(state, IDS[:2])
        assert state.position == 10
    with open_band(folder, layers=(0, 1)) as first, pytest.raises(UsageError, match="no head"):
        first.run(first.new_state(), IDS, "last_logits")
