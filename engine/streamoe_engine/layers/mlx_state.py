"""What a sequence leaves in layers that MLX computes: one cache a layer, as mlx-lm's modules expect.

Owns the caches. Refuses to know how layers use them.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import mlx.core as mx
import mlx.nn as nn

from .. import mlx_lm_import as lm
from ..kv.dense import DenseKVCache
from ..kv.formats import KV_DTYPE_NAMES
from ..plan_types import Plan


class MlxState:
    """One cache for each layer of the band."""

    def __init__(self, caches: list[Any]) -> None:
        self.caches = caches

    def copy(self) -> Self:
        """The same, of its own; for an empty state."""
        return type(self)([copy.deepcopy(cache) for cache in self.caches])

    def arrays(self) -> list[mx.array]:
        """Everything that must be evaluated before a step is over."""
        found: list[mx.array] = []
        for cache in self.caches:
            if isinstance(cache, lm.cache.ArraysCache):
                found += [array for array in cache.cache if array is not None]
            elif isinstance(cache, DenseKVCache):
                found += cache.state
            else:
                found += [array for array in (cache.keys, cache.values) if array is not None]
        return found


def empty_state(model: nn.Module, plan: Plan) -> MlxState:
    """The state of a new sequence. model still has all its layers.

    mlx-lm's growing KVCache is replaced by one that has the planned context from the start.
    """
    caches = lm.cache.make_prompt_cache(model)[plan.first_layer : plan.last_layer + 1]
    dense = DenseKVCache(plan.ctx_tokens, KV_DTYPE_NAMES[plan.kv])
    return MlxState([copy.copy(dense) if type(cache) is lm.cache.KVCache else cache for cache in caches])
