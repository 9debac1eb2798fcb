"""Keys and values as plain arrays of the planned context's length.

Owns one layer's arrays. mlx-lm's own cache grows by concatenation, which needs old and new at once; this one
is touched whole at the first token, so that the plan's row is spent where it can be seen.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from .. import mlx_lm_import as lm


class DenseKVCache:
    """One layer's keys and values: (1, heads, ctx_tokens, dims) of the type MLX calls dtype_name.

    Has the calls of mlx-lm's KVCache that its models make.
    """

    def __init__(self, ctx_tokens: int, dtype_name: str) -> None:
        self._ctx_tokens, self._dtype_name = ctx_tokens, dtype_name
        self._keys: mx.array | None = None
        self._values: mx.array | None = None
        self.offset = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (1, heads, tokens, dims) and return all so far, in the type that was given."""
        stop = self.offset + keys.shape[2]
        assert stop <= self._ctx_tokens, "the band checks the context before it computes"
        self._keys = self._put(self._keys, keys, stop)
        self._values = self._put(self._values, values, stop)
        self.offset = stop
        return self._keys[..., :stop, :].astype(keys.dtype), self._values[..., :stop, :].astype(values.dtype)

    def _put(self, stored: mx.array | None, new: mx.array, stop: int) -> mx.array:
        if stored is None:
            stored = mx.zeros((*new.shape[:2], self._ctx_tokens, new.shape[3]), dtype=getattr(mx, self._dtype_name))
        # The only reference to the stored array moves into the graph, so MLX writes in place.
        stored[..., self.offset : stop, :] = new.astype(stored.dtype)
        return stored

    def make_mask(self, num_tokens: int, *, return_array: bool = False, window_size: int | None = None) -> Any:
        """The mask of the next num_tokens, as mlx-lm makes it."""
        return lm.cache.create_attention_mask(num_tokens, self.offset, return_array, window_size)

    def filled(self, keys: mx.array, values: mx.array) -> DenseKVCache:
        """One of its own like this empty one that holds (1, heads, tokens, dims) keys and values of its type."""
        made = DenseKVCache(self._ctx_tokens, self._dtype_name)
        made.update_and_fetch(keys, values)
        return made

    def held(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values of the tokens so far, (1, heads, tokens, dims) as stored; None before the first."""
        if self._keys is None or self._values is None:
            return None
        return self._keys[..., : self.offset, :], self._values[..., : self.offset, :]

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate at the end of a step."""
        return [array for array in (self._keys, self._values) if array is not None]
