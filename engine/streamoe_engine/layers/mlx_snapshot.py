"""One layer's cache of MLX's to a snapshot's arrays and back.

Owns the translation; names and shapes are state_snapshot's. Bits survive: bfloat16 crosses as uint16. Refuses to know
layers' numbers.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from .. import mlx_lm_import as lm
from ..kv.dense import DenseKVCache
from ..plan_types import Plan
from ..state_snapshot import Arrays, recurrent_name


def saved(cache: Any) -> Arrays:
    """Copies of what a cache holds; {} before the first token."""
    if isinstance(cache, lm.cache.ArraysCache):
        return {recurrent_name(n): _out(array) for n, array in enumerate(cache.cache) if array is not None}
    if isinstance(cache, DenseKVCache):
        held = cache.held()
        return {} if held is None else {"keys": _out(held[0]), "values": _out(held[1])}
    if cache.keys is None:
        return {}
    # A ring is saved as it lies: attention adds in the order of its rows, so another order gives other bits.
    tokens = min(cache.offset, cache.keys.shape[2])
    place = np.array([cache.offset, cache._idx], dtype=np.int64)
    return {
        "keys": _out(cache.keys[..., :tokens, :]),
        "values": _out(cache.values[..., :tokens, :]),
        "place": place,
    }


def loaded(empty: Any, arrays: Arrays, plan: Plan) -> Any:
    """A cache like `empty`, which is a copy of its own, holding the arrays."""
    if not arrays:
        return empty
    kv, compute = plan.kv == "bf16", plan.compute_dtype == "bfloat16"
    if isinstance(empty, DenseKVCache):
        return empty.filled(_in(arrays["keys"], kv), _in(arrays["values"], kv))
    if isinstance(empty, lm.cache.ArraysCache):
        for number in range(len(empty.cache)):
            empty.cache[number] = _in(arrays[recurrent_name(number)], compute)
        return empty
    empty.keys, empty.values = _in(arrays["keys"], compute), _in(arrays["values"], compute)
    empty.offset, empty._idx = arrays["place"].tolist()
    return empty


def _out(array: mx.array) -> np.ndarray:
    """(1, ...) to a copy of (...)."""
    plain = array[0].view(mx.uint16) if array.dtype == mx.bfloat16 else array[0]
    return np.array(plain, order="C")


def _in(array: np.ndarray, is_bfloat16: bool) -> mx.array:
    found = mx.array(array)[None]
    return found.view(mx.bfloat16) if is_bfloat16 and array.dtype == np.uint16 else found
