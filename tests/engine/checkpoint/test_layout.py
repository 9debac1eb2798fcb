"""Where things lie in a model folder: records, rows, resident parts, vision; what is copied and what dropped."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from streamoe_engine.checkpoint import Progress, convert
from streamoe_engine.manifest import Field, Quantization
from streamoe_engine.sizes import MIB
from tests.checkpoints import vision_tensors, write_checkpoint, write_raw_checkpoint
from tests.large_checkpoints import write_large_checkpoint
from tests.tiny_models import TINY_CONFIGS


def full_size_qwen(**values: Any) -> dict[str, Any]:
    """Qwen3.6-35B-A3B's widths, with few layers, experts and words."""
    config = TINY_CONFIGS["qwen3_5_moe"]
    text = {
        "hidden_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "head_dim": 256,
        "num_experts": 4,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    return {**config, "text_config": {**config["text_config"], **text, **values}}


def test_full_size_record_is_laid_out_as_designed(tmp_path: Path) -> None:
    write_large_checkpoint(tmp_path / "source", full_size_qwen(), "q4")
    manifest = convert(tmp_path / "source", tmp_path / "model")
    record = manifest.experts[0].record
    weights = {"gate_proj": (512, 256), "up_proj": (512, 256), "down_proj": (2048, 64)}
    groups = {"gate_proj": (512, 32), "up_proj": (512, 32), "down_proj": (2048, 8)}
    offsets = iter([0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704])
    assert record.fields == tuple(
        Field(f"{projection}.{leaf}", dtype, shapes[projection], next(offsets))
        for projection in ("gate_proj", "up_proj", "down_proj")
        for leaf, dtype, shapes in (("weight", "U32", weights), ("scales", "BF16", groups), ("biases", "BF16", groups))
    )
    assert record.stride_bytes == record.payload_bytes == 1_769_472
    assert manifest.experts[0].quantization == dict.fromkeys(weights, Quantization(64, 4))
    assert (manifest.experts[0].num_experts, manifest.experts[0].top_k) == (4, 2)
    assert manifest.embedding.record.stride_bytes == 1024 + 64 + 64
    assert manifest.embedding.quantization == Quantization(64, 4)


def test_layers_may_be_quantised_differently(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "source", "qwen3_moe", dtype="bfloat16")
    weights = mx.load(str(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    name = "model.layers.2.mlp.switch_mlp.down_proj"
    for leaf, value in zip(("weight", "scales", "biases"), mx.quantize(mx.ones((8, 64, 64)), 32, 8), strict=True):
        weights[f"{name}.{leaf}"] = value if leaf == "weight" else value.astype(mx.bfloat16)
    config["quantization"][name] = {"group_size": 32, "bits": 8}
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))
    layers = convert(folder, tmp_path / "model").experts_by_layer
    assert layers[2].quantization["down_proj"] == Quantization(32, 8)
    assert layers[2].quantization["up_proj"] == layers[1].quantization["down_proj"] == Quantization(64, 4)
    assert layers[2].record.payload_bytes > layers[1].record.payload_bytes


def test_mxfp4_experts_keep_their_mode_and_bias(tmp_path: Path) -> None:
    manifest = convert(write_raw_checkpoint(tmp_path / "source", "gpt_oss"), tmp_path / "model")
    entry = manifest.experts[0]
    assert entry.quantization["gate_proj"] == Quantization(32, 4, "mxfp4")
    leaves = ["weight", "scales", "bias"]
    assert [field.name for field in entry.record.fields] == [
        f"{projection}.{leaf}" for projection in ("gate_proj", "up_proj", "down_proj") for leaf in leaves
    ]
    assert {field.dtype for field in entry.record.fields if field.name.endswith("scales")} == {"U8"}
    assert manifest.embedding.quantization is None  # quantised checkpoints are copied as they are


@pytest.mark.parametrize("form", ["mlx", "raw"])
def test_vision_tensors_are_kept_unchanged(form: str, tmp_path: Path) -> None:
    if form == "mlx":
        prefix, dtype = "vision_tower", mx.float32
        folder = write_checkpoint(tmp_path / "source", "qwen3_5_moe", vision=True, seed=3, shards=2)
    else:
        prefix, dtype = "model.visual", mx.bfloat16
        folder = write_raw_checkpoint(tmp_path / "source", "qwen3_5_moe", seed=3)
    manifest = convert(folder, tmp_path / "model")
    assert manifest.has_vision
    found = mx.load(str(tmp_path / "model" / "vision" / "vision.safetensors"))
    wanted = vision_tensors(prefix, dtype, 3)
    assert found.keys() == wanted.keys()
    assert all(mx.array_equal(found[name], wanted[name]).item() and found[name].dtype == dtype for name in wanted)


def test_files_beside_the_weights(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "source", "qwen3_moe")
    (folder / "special_tokens_map.json").write_text("")  # empty files happen
    (folder / "README.md").write_text("not needed")
    manifest = convert(folder, tmp_path / "model")
    assert not manifest.has_vision and not (tmp_path / "model" / "vision").exists()
    copied = {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}
    found = {path.name for path in (tmp_path / "model").iterdir() if path.is_file()}
    assert found == copied | {"special_tokens_map.json", "manifest.json", "embedding.records"}
    for name in copied:
        assert (tmp_path / "model" / name).read_bytes() == (folder / name).read_bytes()


def test_resident_tensors_start_at_cache_lines_or_at_least_at_their_own_size(tmp_path: Path) -> None:
    write_large_checkpoint(tmp_path / "source", full_size_qwen(), "q4")
    manifest = convert(tmp_path / "source", tmp_path / "model")
    for part, fields in manifest.resident.items():
        content = (tmp_path / "model" / "resident" / f"{part}.safetensors").read_bytes()
        assert (8 + int.from_bytes(content[:8], "little")) % 4096 == 0
        for field in fields:
            assert field.offset % (64 if field.num_bytes % 64 == 0 else 2) == 0, field


def test_progress_is_told_often_and_ends_at_the_total(tmp_path: Path) -> None:
    write_large_checkpoint(tmp_path / "source", full_size_qwen(num_experts=48), "q4")
    seen: list[Progress] = []
    manifest = convert(tmp_path / "source", tmp_path / "model", report=seen.append)
    total = sum(entry.num_bytes for entry in manifest.files.values())
    steps = [after.done_bytes - before.done_bytes for before, after in pairwise(seen)]
    assert total > 100 * MIB
    assert seen[-1].done_bytes == total and {progress.total_bytes for progress in seen} == {total}
    assert min(steps) >= 0 and max(steps) <= 64 * MIB
