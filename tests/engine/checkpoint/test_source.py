"""Reading a source folder: shards, symlinks, and everything that can be wrong with its files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from streamoe_engine.checkpoint import convert, is_checkpoint
from streamoe_engine.checkpoint.source import read_source
from streamoe_engine.errors import CheckpointIncomplete, CheckpointMismatch
from tests.checkpoints import write_checkpoint, write_raw_checkpoint
from tests.engine.checkpoint.comparing import folder_hashes

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", "qwen3_moe", shards=3)


def rewrite_header(path: Path, change: Callable[[dict], None]) -> None:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def test_is_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert is_checkpoint(checkpoint)
    convert(checkpoint, tmp_path / "model")
    assert not is_checkpoint(tmp_path / "model")
    assert not is_checkpoint(tmp_path / "nowhere")
    (checkpoint / "config.json").unlink()
    assert not is_checkpoint(checkpoint)


def test_one_experts_tensors_lie_in_several_shards(checkpoint: Path) -> None:
    source = read_source(checkpoint)
    module = "model.layers.1.mlp.switch_mlp."
    assert len({tensor.file for name, tensor in source.tensors.items() if name.startswith(module)}) == 3


def test_symlinked_folder_and_files_convert_alike(checkpoint: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for number, path in enumerate(sorted(checkpoint.iterdir())):
        (blobs / f"{number:064x}").write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../blobs/{number:064x}")
    (tmp_path / "link").symlink_to(snapshot)
    convert(checkpoint, tmp_path / "plain")
    manifest = convert(tmp_path / "link", tmp_path / "linked")
    assert folder_hashes(tmp_path / "plain") == folder_hashes(tmp_path / "linked")
    assert manifest.source == "link"


def test_without_an_index_the_shards_are_found(checkpoint: Path, tmp_path: Path) -> None:
    convert(checkpoint, tmp_path / "with")
    (checkpoint / "model.safetensors.index.json").unlink()
    convert(checkpoint, tmp_path / "without")
    assert folder_hashes(tmp_path / "with") == folder_hashes(tmp_path / "without")


def test_safetensors_of_other_tools_are_left_alone(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors.index.json").unlink()
    mx.save_safetensors(str(checkpoint / "adapters.safetensors"), {"lora": mx.zeros((2, 2))})
    assert "lora" not in read_source(checkpoint).tensors


@pytest.mark.parametrize("has_index", [True, False])
def test_missing_shard_is_named(checkpoint: Path, has_index: bool) -> None:
    (checkpoint / SHARD).unlink()
    if not has_index:
        (checkpoint / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointIncomplete, match=f"lacks 1 of 3 shards: {SHARD}"):
        read_source(checkpoint)


def test_truncated_shard_is_named_with_figures(checkpoint: Path) -> None:
    path = checkpoint / SHARD
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1)
    with pytest.raises(CheckpointIncomplete, match=f"{SHARD} is cut short: .* ends at {size} B, .* has {size - 1} B"):
        read_source(checkpoint)


@pytest.mark.parametrize("num_bytes", [0, 7, 8, 100])
def test_shard_cut_within_its_header(checkpoint: Path, num_bytes: int) -> None:
    with (checkpoint / SHARD).open("r+b") as file:
        file.truncate(num_bytes)
    with pytest.raises(CheckpointIncomplete, match=SHARD):
        read_source(checkpoint)


def test_a_web_page_in_place_of_a_shard(checkpoint: Path) -> None:
    (checkpoint / SHARD).write_text("<!doctype html><title>Access denied</title>" * 100)
    with pytest.raises(CheckpointIncomplete, match=f"{SHARD} is not safetensors"):
        read_source(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.pop("dtype"),
        lambda entry: entry.update(shape=[1, -4]),
        lambda entry: entry.update(shape=[3, 5]),
        lambda entry: entry.update(data_offsets=[8]),
        lambda entry: entry.update(data_offsets=["a", "b"]),
        lambda entry: entry.update(data_offsets=[64, 0]),
        lambda entry: entry.update(dtype=None),
    ],
)
def test_corrupt_header_entries_are_named(checkpoint: Path, change: Callable[[dict], None]) -> None:
    name = next(iter(mx.load(str(checkpoint / SHARD))))
    rewrite_header(checkpoint / SHARD, lambda header: change(header[name]))
    with pytest.raises(CheckpointIncomplete, match=f"{SHARD} has a corrupt header at {name}"):
        read_source(checkpoint)


def test_header_that_is_not_json(checkpoint: Path) -> None:
    path = checkpoint / SHARD
    content = bytearray(path.read_bytes())
    content[20:24] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(CheckpointIncomplete, match=f"{SHARD} has a corrupt header"):
        read_source(checkpoint)


def test_tensor_that_only_the_index_has(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.extra.weight"] = SHARD
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointIncomplete, match=r"lacks the tensor model\.extra\.weight"):
        read_source(checkpoint)


@pytest.mark.parametrize("text", ["{}", '{"weight_map": ["a"]}', '{"weight_map": {"a": ["b"]}}', "{"])
def test_broken_index(checkpoint: Path, text: str) -> None:
    (checkpoint / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointIncomplete, match=r"model\.safetensors\.index\.json"):
        read_source(checkpoint)


def test_tensor_in_two_files(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors.index.json").unlink()
    (checkpoint / "model-copy.safetensors").write_bytes((checkpoint / SHARD).read_bytes())
    with pytest.raises(CheckpointMismatch, match=r"is both in .* and model-copy.safetensors"):
        read_source(checkpoint)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_broken_configuration(checkpoint: Path, text: str) -> None:
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(CheckpointIncomplete, match=r"config\.json"):
        read_source(checkpoint)


def test_folders_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointIncomplete, match=r"config\.json is missing"):
        read_source(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointIncomplete, match=r"no \*.safetensors"):
        read_source(tmp_path)


def test_missing_expert_of_a_raw_checkpoint_is_named(tmp_path: Path) -> None:
    folder = write_raw_checkpoint(tmp_path / "source", "qwen3_moe")
    shard = str(folder / "model.safetensors")
    weights = mx.load(shard)
    mx.eval(weights)
    name = "model.layers.2.mlp.experts.5.up_proj.weight"
    mx.save_safetensors(shard, {key: value for key, value in weights.items() if key != name})
    with pytest.raises(CheckpointIncomplete, match=f"lacks the tensor {name}"):
        convert(folder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_fingerprint_follows_content_and_time(checkpoint: Path) -> None:
    first = read_source(checkpoint).fingerprint
    assert read_source(checkpoint).fingerprint == first
    (checkpoint / SHARD).touch()
    assert read_source(checkpoint).fingerprint != first
