"""Layers through mlx-lm's own modules: the GPU path, the oracle, and every architecture.

Owns the loop over a band's layers. Refuses to know how experts come to be in memory: the expert modules inside
the layers have been replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from ..families import Family


class Layers(Protocol):
    """Runs inputs through a band's layers."""

    def embed(self, ids: mx.array) -> mx.array:
        """(1, tokens) ids to what `run` takes; first band only."""

    def run(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        """(1, tokens, width) through the layers, appending to caches (one a layer of the band)."""

    def finish(self, hidden: mx.array) -> mx.array:
        """The final norm; last band only."""


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
    """Layers first..last of a family whose facts are known."""

    def __init__(self, inner: Any, family: Family, first: int, last: int) -> None:
        self._inner, self._family, self._numbers = inner, family, range(first, last + 1)

    def embed(self, ids: mx.array) -> mx.array:
        return self._inner.embed_tokens(ids)

    def run(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        for number, cache in zip(self._numbers, caches, strict=True):
            mask = self._family.mask(self._inner, number, hidden, cache)
            hidden = self._inner.layers[number](hidden, mask, cache)
        return hidden

    def finish(self, hidden: mx.array) -> mx.array:
        return self._inner.norm(hidden)


class WholeModel:
    """Any other architecture, run by its own class from ids to the normed hidden state."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def embed(self, ids: mx.array) -> mx.array:
        return ids

    def run(self, hidden: mx.array, caches: Sequence[Any]) -> mx.array:
        return self._inner(hidden, cache=list(caches))

    def finish(self, hidden: mx.array) -> mx.array:
        return hidden
