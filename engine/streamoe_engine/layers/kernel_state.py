"""What a sequence leaves in layers that the C kernels compute: plain arrays, moved on in place.

Owns one sequence's arrays. Refuses to know how they are computed with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.layer_calls import CONV_TAPS, AttentionLayer, GdnLayer
from ..kernels.layer_structs import CACHE_TYPES
from .aligned import aligned_zeros


@dataclass(slots=True)
class GdnState:
    """conv (3, channels): the last projections; memory (value_heads, value_dim, key_dim); float32."""

    conv: np.ndarray
    memory: np.ndarray


@dataclass(slots=True)
class AttentionState:
    """keys, values (kv_heads, ctx_tokens, dim) in the plan's KV format (bfloat16 as uint16)."""

    keys: np.ndarray
    values: np.ndarray


@dataclass(slots=True)
class KernelState:
    """One sequence: a state for each layer of the band; position: tokens run."""

    layers: list[GdnState | AttentionState]
    position: int = 0


def new_state(layers: list[GdnLayer | AttentionLayer], ctx_tokens: int) -> KernelState:
    """The empty state of a sequence of up to ctx_tokens."""
    return KernelState([_empty(layer, ctx_tokens) for layer in layers])


def _empty(layer: GdnLayer | AttentionLayer, ctx_tokens: int) -> GdnState | AttentionState:
    if isinstance(layer, GdnLayer):
        memory = (layer.value_heads, layer.value_dim, layer.key_dim)
        return GdnState(aligned_zeros((CONV_TAPS - 1, layer.num_channels)), aligned_zeros(memory))
    shape, dtype = (layer.kv_heads, ctx_tokens, layer.dim), CACHE_TYPES[layer.cache_dtype][1]
    return AttentionState(aligned_zeros(shape, dtype), aligned_zeros(shape, dtype))
