"""Layers through mlx-lm's own modules: the GPU path, the oracle, and every architecture.

Owns the loop over a band's layers. Refuses to know how experts come to be in memory: the expert modules inside
the layers have been replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..families import Family
from .interface import Want
from .mlx_head import MlxHead
from .mlx_state import MlxState


class RoutedState:
    """The state that the running layer routes on, (1, tokens, width): one at a time, for the cross-layer guess."""

    def __init__(self) -> None:
        self.hidden: mx.array | None = None


class Tap(nn.Module):
    """A layer's norm that shows what it was given: the state after attention, before the experts."""

    def __init__(self, norm: nn.Module, shown: RoutedState) -> None:
        super().__init__()
        self.norm = norm
        self._shown = shown

    def __call__(self, hidden: mx.array) -> mx.array:
        self._shown.hidden = hidden
        return self.norm(hidden)


class LayerByLayer:
    """The middle of a band: layers first..last of a family whose facts are known."""

    def __init__(self, inner: Any, family: Family, first: int, last: int) -> None:
        self._inner, self._family, self._numbers = inner, family, range(first, last + 1)

    def embed(self, ids: mx.array) -> mx.array:
        """(1, tokens) ids to (1, tokens, width); first band only."""
        return self._inner.embed_tokens(ids)

    def run(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        """(1, tokens, width) through the layers, appending to caches (one a layer)."""
        for number, cache in zip(self._numbers, caches, strict=True):
            mask = self._family.mask(self._inner, number, hidden, cache)
            hidden = self._inner.layers[number](hidden, mask, cache)
        return hidden

    def finish(self, hidden: mx.array) -> mx.array:
        """The final norm; last band only."""
        return self._inner.norm(hidden)


class WholeModel:
    """The middle for any other architecture: its own class, from ids to the normed hidden state."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def embed(self, ids: mx.array) -> mx.array:
        """ids as they are: the class embeds them itself."""
        return ids

    def run(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        """(1, tokens) ids to (1, tokens, width)."""
        return self._inner(hidden, cache=list(caches))

    def finish(self, hidden: mx.array) -> mx.array:
        """Nothing: the class has applied its norm."""
        return hidden


class MlxLayers:
    """A band computed by MLX: see interface.Layers. head is None in a band that is not the last."""

    def __init__(
        self, middle: LayerByLayer | WholeModel, head: MlxHead | None, dtype: mx.Dtype, empty_state: MlxState
    ) -> None:
        self._middle, self._head, self._dtype, self._empty_state = middle, head, dtype, empty_state

    def new_state(self) -> MlxState:
        return self._empty_state.copy()

    def run(self, state: MlxState, inputs: np.ndarray, want: Want) -> np.ndarray | None:
        hidden = self._middle.run(self._enter(inputs), state.caches)
        result = self._leave(hidden, want)
        mx.eval(result, *state.arrays())
        return None if want == "nothing" else np.array(result.astype(mx.float32))

    def close(self) -> None:
        pass

    def _enter(self, inputs: np.ndarray) -> mx.array:
        if inputs.ndim == 1:
            return self._middle.embed(mx.array(inputs.astype(np.int32))[None])
        return mx.array(inputs.astype(np.float32))[None].astype(self._dtype)

    def _leave(self, hidden: mx.array, want: Want) -> mx.array:
        if want in ("nothing", "hidden"):
            return hidden[0]
        assert self._head is not None, "the band has checked that it is the last"
        last = hidden if want == "all_logits" else hidden[:, -1:]
        return self._head(self._middle.finish(last)[0])
