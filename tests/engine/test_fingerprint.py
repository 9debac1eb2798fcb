"""One hash of what a folder computes, proofs of its parts, and folders that hold only a band."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine.band_options import BandOptions, plan_for
from streamoe_engine.checkpoint.verify import verify_folder
from streamoe_engine.errors import ModelFileCorrupt, ModelFileMissing
from streamoe_engine.fingerprint import (
    band_files,
    band_leaves,
    fingerprint,
    is_proved,
    leaves,
    proof,
    text_files,
)
from streamoe_engine.manifest import MANIFEST_FILE, FileEntry, Manifest, read_manifest
from streamoe_engine.sizes import GIB
from tests.running import open_band

Folders = Callable[..., tuple[Path, Path]]
IDS = np.arange(9, dtype=np.int32)


@pytest.fixture(scope="module")
def manifest(tiny_folder: Folders) -> Manifest:
    return read_manifest(tiny_folder("qwen3_5_moe")[1])


def test_every_file_but_the_image_encoder_counts(manifest: Manifest) -> None:
    root = fingerprint(manifest)
    assert len(root) == 64 and root == fingerprint(manifest)
    for name, entry in manifest.files.items():
        other = replace(manifest, files={**manifest.files, name: replace(entry, sha256="0" * 64)})
        changed = [leaf for leaf in leaves(manifest) if leaves(manifest)[leaf] != leaves(other)[leaf]]
        assert len(changed) == 1, name
        assert fingerprint(other) != root
    with_vision = {**manifest.files, "vision/vision.safetensors": FileEntry(1, "1" * 64)}
    assert fingerprint(replace(manifest, files=with_vision, has_vision=True, source="elsewhere")) == root
    assert fingerprint(replace(manifest, max_context=99)) != root
    assert fingerprint(replace(manifest, files={**manifest.files, "added.json": FileEntry(1, "1" * 64)})) != root


def test_a_band_proves_its_leaves(manifest: Manifest) -> None:
    root, named = fingerprint(manifest), leaves(manifest)
    for name, leaf in named.items():
        steps = proof(manifest, name)
        assert is_proved(root, leaf, steps)
        assert not is_proved(root, bytes(32), steps)
        assert not is_proved("0" * 64, leaf, steps)
        assert len(steps) <= len(named).bit_length()
    with pytest.raises(KeyError):
        proof(manifest, "layer-0099")


def test_bands_cover_the_leaves(manifest: Manifest) -> None:
    assert band_leaves(manifest, 1, 2) == ["format", "config", "layer-0001", "layer-0002"]
    both = {*band_leaves(manifest, 0, 1), *band_leaves(manifest, 2, 3)}
    assert {*leaves(manifest)} - both == {f"text/{name}" for name in text_files(manifest)}
    files = {*band_files(manifest, 0, 1), *band_files(manifest, 2, 3), *text_files(manifest)}
    assert files == set(manifest.files)
    assert "tokenizer.json" in text_files(manifest)


@pytest.mark.parametrize("family", ["qwen3_5_moe", "deepseek_v3", "gpt_oss"])
def test_a_folder_of_a_bands_files_opens_that_band(tiny_folder: Folders, tmp_path: Path, family: str) -> None:
    whole, parts = tiny_folder(family)[1], []
    for first, last in ((0, 1), (2, 3)):
        part = tmp_path / f"{first}-{last}"
        for name in [MANIFEST_FILE, *band_files(read_manifest(whole), first, last)]:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole / name, part / name)
        parts.append(part)
    with open_band(whole, backend="auto") as band:
        expected = band.run(band.new_state(), IDS, "all_logits")
    with (
        open_band(parts[0], layers=(0, 1), backend="auto") as first,
        open_band(parts[1], layers=(2, 3), backend="auto") as last,
    ):
        hidden = first.run(first.new_state(), IDS, "hidden")
        assert np.array_equal(last.run(last.new_state(), hidden, "all_logits"), expected)
        assert fingerprint(first.manifest) == fingerprint(last.manifest)
    with pytest.raises(ModelFileMissing, match=r"lacks layers 2: .*layer-0002.*; it has layers 0-1 of 0-3") as lacking:
        open_band(parts[0], layers=(0, 2))
    assert "--layers 0-1;" in lacking.value.next_step
    assert f"streamoe pull-band HOST:PORT {parts[0]} --layers 2-2;" in lacking.value.next_step
    with pytest.raises(ModelFileMissing, match=r"lacks layers 0-1: .*; it has layers 2-3 of 0-3"):
        open_band(parts[1])
    assert plan_for(parts[1], BandOptions(budget_bytes=GIB, ctx_tokens=64)).last_layer == 3  # for what is to be pulled
    files = band_files(first.manifest, 2, 3)
    verify_folder(parts[1], names=files)
    (parts[1] / files[-1]).write_bytes(bytes(first.manifest.files[files[-1]].num_bytes))
    with pytest.raises(ModelFileCorrupt, match=files[-1]):
        verify_folder(parts[1], names=files)
