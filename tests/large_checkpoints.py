"""Checkpoints of full-size shapes with random bits, written tensor by tensor in little memory.

For measuring memory and speed: numbers are of a sane scale, but nothing is a model worth running.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from streamoe_engine import skeleton
from tests.checkpoints import quantize, raw_form
from tests.tiny_tokenizer import write_tokenizer

_NAMES = {mx.uint8: "U8", mx.uint32: "U32", mx.bfloat16: "BF16", mx.float32: "F32"}
_BLOCK_ELEMENTS = 4 * 1024 * 1024


def write_large_checkpoint(folder: Path, config: dict[str, Any], form: Literal["q4", "bf16", "raw"]) -> int:
    """Write one safetensors file and what belongs to it; returns the bytes of all tensors."""
    config = dict(config)
    model = skeleton.build_model(config)
    model.set_dtype(mx.bfloat16)
    if form == "q4":
        config["quantization"] = quantize(model)
    tensors = dict(tree_flatten(model.parameters()))  # lazy: only shapes and types are looked at
    if form == "raw":
        tensors = raw_form(tensors, config)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, config.get("text_config", config)["vocab_size"])
    (folder / "config.json").write_text(json.dumps(config))
    return _write_random(folder / "model.safetensors", tensors)


def _write_random(path: Path, tensors: dict[str, mx.array]) -> int:
    header, offset = {}, 0
    for name, array in tensors.items():
        entry = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        header[name] = entry
        offset += array.nbytes
    text = json.dumps(header).encode()
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            for first in range(0, prod(array.shape), _BLOCK_ELEMENTS):
                count = min(_BLOCK_ELEMENTS, prod(array.shape) - first)
                file.write(_random_bits(random, array.dtype, count).tobytes())
    return offset


def _random_bits(random: np.random.Generator, dtype: mx.Dtype, count: int) -> np.ndarray:
    if dtype == mx.bfloat16:  # either sign, 2**-6 to 2**-5
        return random.integers(0, 65536, count, dtype=np.uint16) & 0x807F | 0x3C80
    if dtype == mx.float32:
        return random.uniform(0.1, 1.0, count).astype(np.float32)
    return random.integers(0, 256, count * dtype.size, dtype=np.uint8)
