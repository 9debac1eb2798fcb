"""What a sequence leaves in a band: one cache a layer, and the position they stand at.

Owns a sequence's state. Refuses to know how layers use it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from . import mlx_lm_import as lm
from .kv.dense import DenseKVCache
from .kv.formats import KV_DTYPE_NAMES
from .plan_types import Plan


class SequenceState:
    """One sequence's state in one band. position: tokens run so far."""

    def __init__(self, caches: list[Any]) -> None:
        self.caches = caches
        self.position = 0

    @property
    def is_held(self) -> bool:
        """False once the state has been released, or lost by an error midway."""
        return bool(self.caches)

    def release(self) -> None:
        """Give the memory back; the sequence cannot go on."""
        self.caches = []

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


def cache_maker(model: nn.Module, plan: Plan) -> Callable[[], list[Any]]:
    """A function that makes the empty caches of a new sequence, one a layer of the band.

    model still has all its layers. mlx-lm's growing KVCache is replaced by one that has the planned context from
    the start.
    """
    dtype = getattr(mx, KV_DTYPE_NAMES[plan.kv])
    empty = lm.cache.make_prompt_cache(model)[plan.first_layer : plan.last_layer + 1]

    def make() -> list[Any]:
        return [
            DenseKVCache(plan.ctx_tokens, dtype) if type(cache) is lm.cache.KVCache else copy.deepcopy(cache)
            for cache in empty
        ]

    return make
