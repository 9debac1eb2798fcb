"""The few facts that differ between architectures, for those whose layers the engine runs one by one.

Owns: which attention mask a layer takes, and where its router sits. Refuses to know streaming.
An architecture not listed here runs through its own mlx-lm class as a whole (layers.WholeModel): right by
construction, but in one band only and without the cross-layer guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from . import mlx_lm_import as lm

Mask = Callable[[Any, int, mx.array, Any], Any]
Scores = Callable[[Any, mx.array], mx.array]


def _plain_mask(inner: Any, layer: int, hidden: mx.array, cache: Any) -> Any:
    return lm.base.create_attention_mask(hidden, cache)


def _array_mask(inner: Any, layer: int, hidden: mx.array, cache: Any) -> Any:
    # Multi-head latent attention adds the mask to its own position scores, so it needs the array.
    return lm.base.create_attention_mask(hidden, cache, return_array=True)


def _hybrid_mask(inner: Any, layer: int, hidden: mx.array, cache: Any) -> Any:
    if inner.layers[layer].is_linear:
        return lm.base.create_ssm_mask(hidden, cache)
    return lm.base.create_attention_mask(hidden, cache)


def _window_mask(inner: Any, layer: int, hidden: mx.array, cache: Any) -> Any:
    if inner.layer_types[layer] == "full_attention":
        return lm.base.create_attention_mask(hidden, cache)
    return lm.base.create_attention_mask(hidden, cache, window_size=inner.window_size)


def _linear_scores(router: Any, x: mx.array) -> mx.array:
    return router(x)


def _biased_sigmoid_scores(router: Any, x: mx.array) -> mx.array:
    # Selection, not weighting: the correction bias counts, the group limit is left to the real routing.
    return mx.sigmoid((x @ router.weight.T).astype(mx.float32)) + router.e_score_correction_bias


@dataclass(frozen=True, slots=True)
class Family:
    """mask(inner model, layer, hidden, cache) of a layer; router's name inside the expert block; norm's name
    inside the layer, whose input is the state that routing sees; scores(router, x) that selection ranks by."""

    mask: Mask = _plain_mask
    router: str = "gate"
    norm: str = "post_attention_layernorm"
    scores: Scores = _linear_scores


FAMILIES: dict[str, Family] = {
    "qwen3_5_moe": Family(mask=_hybrid_mask),
    "qwen3_next": Family(mask=_hybrid_mask),
    "qwen3_moe": Family(),
    "qwen2_moe": Family(),
    "olmoe": Family(),
    "mixtral": Family(),
    "deepseek_v3": Family(mask=_array_mask, scores=_biased_sigmoid_scores),
    "kimi_k2": Family(mask=_array_mask, scores=_biased_sigmoid_scores),
    "glm4_moe": Family(scores=_biased_sigmoid_scores),
    "gpt_oss": Family(mask=_window_mask, router="router"),
}
