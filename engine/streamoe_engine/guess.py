"""Which experts the next layer may pick: candidates that decide what is read early, and nothing else.

Owns the guesses. Refuses to know whether they were right: routing always uses the model's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import mlx.core as mx
import numpy as np

GuessName = Literal["auto", "cross-layer", "previous-token", "none"]
GUESS_NAMES: tuple[GuessName, ...] = ("auto", "cross-layer", "previous-token", "none")


class Guesser(Protocol):
    """Asked once a layer and token: `scores` before the layer's evaluation, `candidates` after it."""

    def scores(self, layer: int) -> mx.array | None:
        """A lazy array to be evaluated together with this layer's routing, or None."""

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        """Experts the next expert layer may pick, likeliest first; `picks` are this layer's own."""


class NoGuess:
    """Reads nothing early."""

    def scores(self, layer: int) -> mx.array | None:
        return None

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        return ()


class PreviousToken:
    """The next layer picks what it picked for the token before."""

    def __init__(self, next_layer: dict[int, int]) -> None:
        self._next_layer = next_layer
        self._last_picks: dict[int, Sequence[int]] = {}

    def scores(self, layer: int) -> mx.array | None:
        return None

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        self._last_picks[layer] = picks
        return self._last_picks.get(self._next_layer.get(layer, -1), ())


class CrossLayer:
    """The next layer's norm and router, applied to the hidden state this layer routes on.

    hidden: gives the running layer's state after attention, before its experts. routers: for each layer, the
    function from that state to the next layer's selection scores (experts,).
    """

    def __init__(
        self, hidden: Callable[[], mx.array], routers: dict[int, Callable[[mx.array], mx.array]], width: int
    ) -> None:
        self._hidden, self._routers, self._width = hidden, routers, width

    def scores(self, layer: int) -> mx.array | None:
        router = self._routers.get(layer)
        return None if router is None else router(self._hidden())

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        if scores is None:
            return ()
        flat = scores.reshape(-1)
        width = min(self._width, flat.size)
        likely = np.argpartition(flat, -width)[-width:]
        return likely[np.argsort(-flat[likely], kind="stable")].tolist()
