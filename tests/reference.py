"""mlx-lm's own run of a checkpoint: the oracle that the engine's logits are held against, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from streamoe_engine import mlx_lm_import as lm
from streamoe_engine import skeleton


def load_reference(folder: Path, dtype: mx.Dtype | None = mx.float32) -> Any:
    """The checkpoint as mlx-lm runs it, everything in memory; dtype None keeps the stored types."""
    config = json.loads((folder / "config.json").read_text())
    model, weights = skeleton.build_model(config), {}
    for file in sorted(folder.glob("*.safetensors")):
        weights.update(mx.load(str(file)))
    weights = model.sanitize(weights) if hasattr(model, "sanitize") else weights
    if spec := config.get("quantization"):

        def predicate(path: str, module: Any) -> Any:
            return hasattr(module, "to_quantized") and f"{path}.scales" in weights and spec.get(path, True)

        nn.quantize(model, spec["group_size"], spec["bits"], class_predicate=predicate)
    model.load_weights(list(weights.items()))
    if dtype is not None:
        model.set_dtype(dtype)
    return model


def reference_logits(folder: Path, ids: np.ndarray, prompt: int, dtype: mx.Dtype | None = mx.float32) -> np.ndarray:
    """(tokens, vocabulary) float32: the first `prompt` ids at once, the rest one by one."""
    model = load_reference(folder, dtype)
    cache = lm.cache.make_prompt_cache(model)
    pieces = [ids[:prompt], *(ids[at : at + 1] for at in range(prompt, len(ids)))]
    logits = [model(mx.array(piece[None]), cache=cache)[0].astype(mx.float32) for piece in pieces]
    return np.concatenate([np.array(piece) for piece in logits])
