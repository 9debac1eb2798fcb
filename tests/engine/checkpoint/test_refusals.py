"""Checkpoints that cannot be converted: each is refused before anything is written, with names and figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from streamoe_engine.checkpoint import ConvertOptions, convert
from streamoe_engine.errors import (
    CheckpointIncomplete,
    CheckpointMismatch,
    ModelNotSupported,
    StreamoeError,
    UsageError,
)
from tests.checkpoints import write_checkpoint, write_raw_checkpoint


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", "qwen3_moe")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_raw_checkpoint(tmp_path / "source", "qwen3_moe")


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_tensors(folder: Path, added: dict[str, mx.array], removed: tuple[str, ...] = ()) -> None:
    shard = str(folder / "model.safetensors")
    weights = {key: value for key, value in mx.load(shard).items() if key not in removed}
    mx.eval(weights)
    mx.save_safetensors(shard, weights | added)


def refused(folder: Path, kind: type[StreamoeError], *words: str) -> None:
    target = folder.with_name("model")
    with pytest.raises(kind) as caught:
        convert(folder, target)
    for word in words:
        assert re.search(word, caught.value.message), caught.value.message
    assert caught.value.next_step
    assert not target.exists() and not target.with_name("model.partial").exists()


@pytest.mark.parametrize("model_type", ["no_such_family", "llama", "cache", ""])
def test_unknown_architectures(quantized: Path, model_type: str) -> None:
    change_config(quantized, model_type=model_type)
    refused(quantized, ModelNotSupported)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_hidden_layers": 3}, (r"model\.layers\.3\.", r"\d+ tensors are no part")),
        ({"moe_intermediate_size": 128}, (r"gate_proj\.weight \[8, 64, 8\]", r"\[8, 128, 64\]")),
        ({"num_experts": 4}, (r"\[8, 64, 8\]", r"\[4, 64, 64\]")),
        ({"vocab_size": 300}, (r"\[256, 8\]", r"\[300, 64\]")),
        ({"head_dim": 64}, (r"q_norm\.weight|q_proj\.weight", r"\[128, 8\]", r"\[256, 64\]")),
        ({"hidden_size": 128}, (r"\[8, 64, 8\]", r"\[8, 128, 64\]")),
    ],
)
def test_configuration_of_another_model_names_both_shapes(
    quantized: Path, values: dict[str, Any], words: tuple[str, ...]
) -> None:
    change_config(quantized, **values)
    refused(quantized, CheckpointMismatch, *words)


def test_floating_point_configuration_of_another_model(raw: Path) -> None:
    change_config(raw, moe_intermediate_size=128)
    refused(raw, CheckpointMismatch, r"gate_proj\.weight", r"\[8, 64, 64\]", r"\[8, 128, 64\]")


def test_a_layer_too_many_in_the_configuration(quantized: Path) -> None:
    change_config(quantized, num_hidden_layers=5)
    refused(quantized, CheckpointIncomplete, r"model\.layers\.4\.mlp\.switch_mlp\.gate_proj\.weight \[8, 64, 64\]")


def test_missing_tensor_is_named(quantized: Path) -> None:
    change_tensors(quantized, {}, ("model.layers.2.self_attn.q_norm.weight",))
    refused(quantized, CheckpointIncomplete, r"model\.layers\.2\.self_attn\.q_norm\.weight \[32\]")


def test_unknown_tensor_is_named(quantized: Path) -> None:
    change_tensors(quantized, {"model.layers.0.extra.weight": mx.zeros((3,))})
    refused(quantized, CheckpointMismatch, r"1 tensors .* model\.layers\.0\.extra\.weight \[3\]")


def test_experts_of_unequal_shapes(raw: Path) -> None:
    change_tensors(raw, {"model.layers.1.mlp.experts.3.up_proj.weight": mx.zeros((32, 64), dtype=mx.bfloat16)})
    refused(raw, CheckpointMismatch, "mlx-lm cannot take the tensors")


def test_packing_that_is_no_quantisation(quantized: Path) -> None:
    name = "model.layers.0.self_attn.q_proj"
    change_tensors(quantized, {f"{name}.scales": mx.zeros((128, 7)), f"{name}.biases": mx.zeros((128, 7))})
    refused(quantized, ModelNotSupported, name, r"\[128, 7\]", "no known quantisation")


def test_scales_without_biases(quantized: Path) -> None:
    change_tensors(quantized, {}, ("model.layers.0.mlp.switch_mlp.up_proj.biases",))
    refused(quantized, ModelNotSupported, "switch_mlp.up_proj", "no known quantisation")


def test_configured_bits_that_tensors_contradict(quantized: Path) -> None:
    spec = json.loads((quantized / "config.json").read_text())["quantization"]
    change_config(quantized, quantization={**spec, "lm_head": {"group_size": 64, "bits": 8}})
    refused(quantized, CheckpointMismatch, "8 bits in groups of 64 .* lm_head", "4 bits in groups of 64")


@pytest.mark.parametrize("method", ["fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt"])
def test_foreign_formats_by_their_configuration(raw: Path, method: str) -> None:
    change_config(raw, quantization_config={"quant_method": method})
    refused(raw, ModelNotSupported, f"'{method}'")


@pytest.mark.parametrize(
    ("leaf", "what"),
    [("weight_scale_inv", "fp8"), ("qweight", "GPTQ"), ("weight_packed", "compressed-tensors"), ("absmax", "bitsan")],
)
def test_foreign_formats_by_their_tensors(raw: Path, leaf: str, what: str) -> None:
    change_tensors(raw, {f"model.layers.0.self_attn.q_proj.{leaf}": mx.zeros((2, 2))})
    refused(raw, ModelNotSupported, rf"q_proj\.{leaf}", what)


@pytest.mark.parametrize("dtype", ["F64", "F8_E4M3", "X99"])
def test_dtypes_without_a_reader(raw: Path, dtype: str) -> None:
    shard = raw / "model.safetensors"
    content = shard.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    begin, end = header["model.norm.weight"]["data_offsets"]
    elements = {"F64": (end - begin) // 8, "F8_E4M3": end - begin, "X99": 64}[dtype]
    header["model.norm.weight"] = {"dtype": dtype, "shape": [elements], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    shard.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    refused(raw, ModelNotSupported, f"model.norm.weight has dtype {dtype}")


def test_integers_in_place_of_weights(raw: Path) -> None:
    change_tensors(raw, {"model.norm.weight": mx.zeros((64,), dtype=mx.int32)})
    refused(raw, ModelNotSupported, "model.norm.weight has dtype I32")


def test_expert_form_without_a_reader(tmp_path: Path) -> None:
    folder = write_raw_checkpoint(tmp_path / "source", "gpt_oss")
    shard = str(folder / "model.safetensors")
    weights = mx.load(shard)
    mx.eval(weights)
    weights = {key: value for key, value in weights.items() if ".experts." not in key}
    for layer in range(4):
        # As transformers keeps it in bf16: (experts, width, 2 x inner), which mlx-lm misreads.
        weights[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = mx.zeros((8, 64, 128), dtype=mx.bfloat16)
        weights[f"model.layers.{layer}.mlp.experts.down_proj"] = mx.zeros((8, 64, 64), dtype=mx.bfloat16)
    mx.save_safetensors(shard, weights)
    change_config(folder, quantization_config=None)
    refused(folder, CheckpointIncomplete, r"mlp\.experts\.gate_proj\.weight")


def test_options_that_mlx_has_not() -> None:
    for values in ({"bits": 7}, {"group_size": 48}, {"quantize": "never"}):
        with pytest.raises(UsageError):
            ConvertOptions(**values)


def test_a_target_that_is_there_is_left_alone(quantized: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    convert(quantized, target)  # an empty folder may be filled
    before = (target / "manifest.json").read_bytes()
    for other in (target, target / "manifest.json"):
        with pytest.raises(UsageError, match="exists already"):
            convert(quantized, other)
    assert (target / "manifest.json").read_bytes() == before
