"""The test checkpoints themselves: mlx-lm must load every form of them strictly."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from streamoe_engine import skeleton
from tests.checkpoints import RAW_FAMILIES, random_model, write_checkpoint, write_raw_checkpoint
from tests.tiny_models import TINY_CONFIGS


def sanitized(folder: Path) -> tuple[dict, dict[str, mx.array], nn.Module]:
    config = json.loads((folder / "config.json").read_text())
    weights: dict[str, mx.array] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        weights |= mx.load(str(shard))
    model = skeleton.build_model(config)
    return config, model.sanitize(weights) if hasattr(model, "sanitize") else weights, model


@pytest.mark.parametrize("family", TINY_CONFIGS)
def test_quantized_checkpoint_loads_strictly_and_computes(family: str, tmp_path: Path) -> None:
    config, weights, model = sanitized(write_checkpoint(tmp_path, family, shards=3, seed=1))
    spec = config["quantization"]
    nn.quantize(
        model, class_predicate=lambda p, m: f"{p}.scales" in weights and spec.get(p, True), group_size=64, bits=4
    )
    model.load_weights(list(weights.items()), strict=True)
    logits = model(mx.array([[1, 2, 3]]))
    assert mx.all(mx.isfinite(logits)).item()
    assert 0.05 < mx.std(logits).item() < 50


@pytest.mark.parametrize("family", RAW_FAMILIES)
def test_raw_form_sanitizes_to_the_same_model(family: str, tmp_path: Path) -> None:
    _, weights, model = sanitized(write_raw_checkpoint(tmp_path, family, shards=2, seed=1))
    wanted = dict(tree_flatten(random_model(TINY_CONFIGS[family], dtype="bfloat16", seed=1).parameters()))
    for key, value in wanted.items():
        if family == "gpt_oss" and ".experts." in key and not key.endswith("bias"):
            assert weights[key].dtype == mx.uint32
        else:
            assert mx.array_equal(weights[key], value).item(), key
            assert weights[key].dtype == value.dtype, key
    if family != "gpt_oss":
        model.load_weights(list(weights.items()), strict=True)


def test_tokenizer_speaks_all_of_utf8(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "qwen3_moe")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "<|im_start|>user\nGrüße, 世界 🙂\t<think>x</think><|im_end|>"
    ids = tokenizer.encode(text).ids
    assert max(ids) < 256
    assert tokenizer.get_vocab_size() == 256
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "user\nGrüße, 世界 🙂\t<think>x</think>"
