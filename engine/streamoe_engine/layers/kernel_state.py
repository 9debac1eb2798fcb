"""What a sequence leaves in layers that the C kernels compute: plain arrays, moved on in place.

Owns one sequence's arrays. Refuses to know how they are computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..kernels.layer_calls import CONV_TAPS, AttentionLayer, GdnLayer
from ..kernels.layer_structs import CACHE_TYPES
from ..state_snapshot import Arrays, recurrent_name
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


def save(state: KernelState, numbers: Sequence[int]) -> dict[int, Arrays]:
    """Copies of a state's arrays, by layer number; keys and values cut to the tokens run."""
    return {
        number: _saved(kept, state.position) if state.position else {}
        for number, kept in zip(numbers, state.layers, strict=True)
    }


def load(state: KernelState, layers: Sequence[Arrays], position: int) -> KernelState:
    """The empty `state`, filled with what `save` gave at `position`."""
    state.position = position
    for kept, arrays in zip(state.layers, layers, strict=True) if position else ():
        if isinstance(kept, GdnState):
            kept.conv[:], kept.memory[:] = arrays[recurrent_name(0)], arrays[recurrent_name(1)]
        else:
            kept.keys[:, :position], kept.values[:, :position] = arrays["keys"], arrays["values"]
    return state


def _saved(kept: GdnState | AttentionState, position: int) -> Arrays:
    if isinstance(kept, GdnState):
        return {recurrent_name(0): kept.conv.copy(), recurrent_name(1): kept.memory.copy()}
    return {"keys": kept.keys[:, :position].copy(), "values": kept.values[:, :position].copy()}


def _empty(layer: GdnLayer | AttentionLayer, ctx_tokens: int) -> GdnState | AttentionState:
    if isinstance(layer, GdnLayer):
        memory = (layer.value_heads, layer.value_dim, layer.key_dim)
        return GdnState(aligned_zeros((CONV_TAPS - 1, layer.num_channels)), aligned_zeros(memory))
    shape, dtype = (layer.kv_heads, ctx_tokens, layer.dim), CACHE_TYPES[layer.cache_dtype][1]
    return AttentionState(aligned_zeros(shape, dtype), aligned_zeros(shape, dtype))
