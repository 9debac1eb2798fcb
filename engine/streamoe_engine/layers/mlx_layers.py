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
from ..kernels import Kernels
from ..plan_types import Plan
from ..state_snapshot import Arrays
from ..wired import WiredLimit
from .interface import BeforeLayer, Want
from .mlx_head import Head
from .mlx_snapshot import loaded, saved
from .mlx_state import MlxState
from .mlx_together import Meeting


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

    def __init__(self, inner: Any, family: Family, first: int, last: int, meeting: Meeting) -> None:
        self._inner, self._family, self._numbers = inner, family, range(first, last + 1)
        self._meeting = meeting

    def embed(self, ids: mx.array) -> mx.array:
        """(1, tokens) ids to (1, tokens, width); first band only."""
        return self._inner.embed_tokens(ids)

    def run(self, hidden: mx.array, caches: Sequence[Any], before_layer: BeforeLayer | None) -> mx.array:
        """(1, tokens, width) through the layers, appending to caches (one a layer)."""
        for number, cache in zip(self._numbers, caches, strict=True):
            if before_layer is not None:
                before_layer(number)
            hidden = self._layer(number, hidden, cache)
        return hidden

    def run_together(
        self, hidden: Sequence[mx.array], caches: Sequence[Sequence[Any]], before_layer: BeforeLayer | None
    ) -> list[mx.array]:
        """A (1, 1, width) of each sequence through the layers; caches: each sequence's. Lazy, as run."""
        rows = list(hidden)
        try:
            for at, number in enumerate(self._numbers):
                if before_layer is not None:
                    before_layer(number)
                self._meeting.open()
                rows = [self._layer(number, row, own[at]) for row, own in zip(rows, caches, strict=True)]
                self._meeting.close()
        finally:
            self._meeting.abandon()
        return rows

    def _layer(self, number: int, hidden: mx.array, cache: Any) -> mx.array:
        mask = self._family.mask(self._inner, number, hidden, cache)
        return self._inner.layers[number](hidden, mask, cache)

    def finish(self, hidden: mx.array) -> mx.array:
        """The final norm; last band only."""
        return self._inner.norm(hidden)


class WholeModel:
    """The middle for any other architecture: its own class, from ids to the normed hidden state."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._before_layer: BeforeLayer | None = None
        inner.layers = [self._announced(layer, number) for number, layer in enumerate(inner.layers)]

    def embed(self, ids: mx.array) -> mx.array:
        """ids as they are: the class embeds them itself."""
        return ids

    def run(self, hidden: mx.array, caches: Sequence[Any], before_layer: BeforeLayer | None) -> mx.array:
        """(1, tokens) ids to (1, tokens, width)."""
        self._before_layer = before_layer
        return self._inner(hidden, cache=list(caches))

    def _announced(self, layer: Any, number: int) -> Any:
        """The layer, of a class that tells its number before it is called: the model's loop is not ours."""

        class Announced(type(layer)):  # type: ignore[misc]
            def __call__(announced, *args: Any, **options: Any) -> Any:
                if self._before_layer is not None:
                    self._before_layer(number)
                return super().__call__(*args, **options)

        layer.__class__ = Announced
        return layer

    def finish(self, hidden: mx.array) -> mx.array:
        """Nothing: the class has applied its norm."""
        return hidden


class MlxLayers:
    """A band computed by MLX: see interface.Layers. head is None in a band that is not the last.

    native: the kernels that matrices in the middle and the head use; wired: the band's wired limit. Both are closed
    with it.
    """

    def __init__(
        self,
        middle: LayerByLayer | WholeModel,
        head: Head | None,
        plan: Plan,
        empty_state: MlxState,
        native: Kernels | None,
        wired: WiredLimit,
    ) -> None:
        self._middle, self._head, self._plan, self._empty_state = middle, head, plan, empty_state
        self._native, self._wired = native, wired
        self._dtype: mx.Dtype = getattr(mx, plan.compute_dtype)

    def new_state(self) -> MlxState:
        return self._empty_state.copy()

    def run(
        self, state: MlxState, inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        hidden = self._middle.run(self._enter(inputs), state.caches, before_layer)
        result = self._leave(hidden, want)
        mx.eval(result, *state.arrays())
        return None if want == "nothing" else np.array(result.astype(mx.float32))

    def run_together(
        self, states: Sequence[MlxState], inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        """An architecture that runs as a whole runs its sequences one after another: its layers cannot wait for each
        other's experts.
        """
        ones = [inputs[row : row + 1] for row in range(len(states))]
        if isinstance(self._middle, WholeModel):
            results = [self.run(*pair, want, before_layer) for pair in zip(states, ones, strict=True)]
            return None if want == "nothing" else np.concatenate([each for each in results if each is not None])
        rows = self._middle.run_together([self._enter(one) for one in ones], [s.caches for s in states], before_layer)
        result = self._leave(mx.concatenate(rows, axis=1), "hidden" if want in ("nothing", "hidden") else "all_logits")
        mx.eval(result, *(array for state in states for array in state.arrays()))
        return None if want == "nothing" else np.array(result.astype(mx.float32))

    def save(self, state: MlxState) -> dict[int, Arrays]:
        return {self._plan.first_layer + at: saved(cache) for at, cache in enumerate(state.caches)}

    def load(self, layers: dict[int, Arrays], position: int) -> MlxState:
        empty = self.new_state()
        first = self._plan.first_layer
        state = MlxState([loaded(cache, layers[first + at], self._plan) for at, cache in enumerate(empty.caches)])
        mx.eval(*state.arrays())
        return state

    def close(self) -> None:
        self._wired.close()
        if self._native is not None:
            self._native.close()

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
