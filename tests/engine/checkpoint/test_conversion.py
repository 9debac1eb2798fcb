"""Conversions of every family and form, compared bit by bit with what mlx-lm makes of the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from streamoe_engine.checkpoint import ConvertOptions, convert
from streamoe_engine.manifest import read_manifest
from streamoe_engine.skeleton import probe
from tests.checkpoints import RAW_FAMILIES, split_experts, write_checkpoint, write_raw_checkpoint
from tests.engine.checkpoint.comparing import Reference, assert_folder_holds, mlx_lm_views
from tests.tiny_models import TINY_CONFIGS

Job = tuple[Path, str]
MXFP4 = {"mode": "mxfp4", "bits": 4, "group_size": 32}


OTHER_CONFIGS = {
    "qwen2_moe": {
        **TINY_CONFIGS["qwen3_moe"],
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": 64,
        "head_dim": 16,
    },
    "minimax": {
        **TINY_CONFIGS["mixtral"],
        "model_type": "minimax",
        "shared_intermediate_size": 64,
        "head_dim": 32,
        "rotary_dim": 16,
        "layer_types": None,
    },
}
# kv_b_proj of 12 MiB in f32: more than what is read without asking whether anything comes of it.
WIDE_LATENT = {**TINY_CONFIGS["deepseek_v3"], "kv_lora_rank": 512, "num_attention_heads": 96, "num_key_value_heads": 96}


def write_old_deepseek(folder: Path) -> Path:
    """4-bit as mlx-community wrote it before mlx-lm split kv_b_proj: that matrix is quantised as a whole."""
    write_checkpoint(folder, "deepseek_v3", seed=5)
    weights, shard = mx.load(str(folder / "model.safetensors")), folder / "model.safetensors"
    for key in [key for key in weights if "embed_q" in key or "unembed_out" in key]:
        del weights[key]
    for layer in range(4):
        matrix = mx.random.normal((4 * 128, 64), key=mx.random.key(layer)) / 8
        parts = dict(zip(("weight", "scales", "biases"), mx.quantize(matrix, 64, 4), strict=True))
        weights |= {f"model.layers.{layer}.self_attn.kv_b_proj.{leaf}": part for leaf, part in parts.items()}
    mx.eval(weights)
    mx.save_safetensors(str(shard), weights)
    return folder


def write_separate_q4(folder: Path) -> Path:
    """4-bit experts that were never stacked, in files of their own: w1, w3, w2 with scales and biases."""
    write_checkpoint(folder, "mixtral", seed=6)
    shard = folder / "model.safetensors"
    split = split_experts(mx.load(str(shard)), gate_proj="w1", up_proj="w3", down_proj="w2")
    mx.eval(split)
    shard.unlink()
    for number in range(3):
        part = {name: value for i, (name, value) in enumerate(split.items()) if i % 3 == number}
        mx.save_safetensors(str(folder / f"model-{number + 1:05d}-of-00003.safetensors"), part)
    return folder


def write_stray_head(folder: Path) -> Path:
    """Tied embeddings, and an lm_head of 5 MB all the same, which mlx-lm drops."""
    config = {**TINY_CONFIGS["qwen3_next"], "tie_word_embeddings": True, "vocab_size": 40_000}
    write_raw_checkpoint(folder, "qwen3_next", config=config)
    head = {"lm_head.weight": mx.zeros((40_000, 64), dtype=mx.bfloat16)}
    mx.save_safetensors(str(folder / "model-head.safetensors"), head)
    return folder


def tied(family: str) -> dict:
    config = json.loads(json.dumps(TINY_CONFIGS[family]))
    config["tie_word_embeddings"] = True
    if "text_config" in config:
        config["text_config"]["tie_word_embeddings"] = True
    return config


def write_jobs(root: Path) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for family in TINY_CONFIGS:
        q4 = write_checkpoint(root / f"{family}-q4", family, shards=3, seed=2)
        bf16 = write_checkpoint(root / f"{family}-bf16", family, dtype="bfloat16", quantized=False, seed=3)
        jobs |= {f"{family}-q4": (q4, "auto"), f"{family}-bf16": (bf16, "auto"), f"{family}-keep": (bf16, "keep")}
    for family in RAW_FAMILIES:
        raw = write_raw_checkpoint(root / f"{family}-raw", family, shards=2, seed=4)
        jobs |= {f"{family}-raw": (raw, "auto"), f"{family}-raw-keep": (raw, "keep")}
    for family in ("qwen3_5_moe", "olmoe"):
        folder = write_checkpoint(root / f"{family}-tied", family, dtype="bfloat16", config=tied(family))
        jobs[f"{family}-tied"] = (folder, "auto")
        folder = write_raw_checkpoint(root / f"{family}-raw-tied", family, config=tied(family))
        jobs[f"{family}-raw-tied"] = (folder, "auto")
    mxfp4 = write_checkpoint(root / "gpt_oss-mxfp4", "gpt_oss", dtype="bfloat16", expert_quantization=MXFP4)
    f16 = write_checkpoint(root / "mixtral-f16", "mixtral", dtype="float16", quantized=False)
    mixed = {"bits": 3, "group_size": 32}
    q3 = write_checkpoint(root / "qwen3_moe-q3", "qwen3_moe", dtype="bfloat16", expert_quantization=mixed)
    for family, config in OTHER_CONFIGS.items():
        jobs[f"{family}-raw"] = (write_raw_checkpoint(root / f"{family}-raw", family, config=config), "auto")
    jobs["deepseek_v3-old-q4"] = (write_old_deepseek(root / "deepseek_v3-old-q4"), "auto")
    jobs["mixtral-separate-q4"] = (write_separate_q4(root / "mixtral-separate-q4"), "auto")
    jobs["deepseek_v3-wide"] = (write_raw_checkpoint(root / "wide", "deepseek_v3", config=WIDE_LATENT), "auto")
    jobs["qwen3_next-stray-head"] = (write_stray_head(root / "stray"), "auto")
    return jobs | {"gpt_oss-mxfp4": (mxfp4, "auto"), "mixtral-f16": (f16, "auto"), "qwen3_moe-q3": (q3, "auto")}


NAMES = [
    *(f"{family}-{form}" for family in TINY_CONFIGS for form in ("q4", "bf16", "keep")),
    *(f"{family}-{form}" for family in RAW_FAMILIES for form in ("raw", "raw-keep")),
    *(f"{family}-{form}" for family in ("qwen3_5_moe", "olmoe") for form in ("tied", "raw-tied")),
    "gpt_oss-mxfp4",
    "mixtral-f16",
    "qwen3_moe-q3",
    "qwen2_moe-raw",
    "minimax-raw",
    "deepseek_v3-old-q4",
    "mixtral-separate-q4",
    "deepseek_v3-wide",
    "qwen3_next-stray-head",
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    found = write_jobs(tmp_path_factory.mktemp("checkpoints"))
    assert list(found) and set(found) == set(NAMES)
    return found


@pytest.fixture(scope="module")
def references(jobs: dict[str, Job], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reference]:
    return mlx_lm_views(jobs, tmp_path_factory.mktemp("references"))


@pytest.mark.parametrize("name", NAMES)
def test_folder_holds_what_mlx_lm_makes_of_the_checkpoint(
    name: str, jobs: dict[str, Job], references: dict[str, Reference], tmp_path: Path
) -> None:
    source, mode = jobs[name]
    reference = references[name]
    convert(source, tmp_path / "model", ConvertOptions(quantize=mode))
    manifest = assert_folder_holds(tmp_path / "model", reference)
    config = json.loads((source / "config.json").read_text())
    architecture = probe(config)
    assert manifest == read_manifest(tmp_path / "model")
    assert manifest.family == config["model_type"] and manifest.source == source.name
    assert [entry.layer for entry in manifest.experts] == [entry.layer for entry in architecture.experts]
    assert manifest.states == architecture.states
    embedding = architecture.embedding_path + ".weight"
    is_in_tail = embedding in {field.name for field in manifest.resident["tail"]}
    assert is_in_tail == (architecture.head_path is None)
    assert (tmp_path / "model" / "config.json").read_bytes() == (source / "config.json").read_bytes()
