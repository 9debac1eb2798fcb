"""Which experts the next layer may pick: candidates that decide what is read early, and nothing else.

Owns the guesses. Refuses to know whether they were right: routing always uses the model's own logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

GuessName = Literal["auto", "cross-layer", "previous-token", "none"]
GUESS_NAMES: tuple[GuessName, ...] = ("auto", "cross-layer", "previous-token", "none")


class Guesser(Protocol):
    """Asked once a layer and token, after the layer has routed."""

    @property
    def wants_scores(self) -> bool:
        """Whether the next layer's router should be tried on this layer's state, in the same evaluation."""

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        """Experts the next expert layer may pick, likeliest first.

        scores: what the next layer's router says of this layer's state after attention, (experts,) float32 in any
        shape; None when it was not tried. picks: this layer's own.
        """


class NoGuess:
    """Reads nothing early."""

    wants_scores = False

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        """Nothing."""
        return ()


class PreviousToken:
    """The next layer picks what it picked for the token before."""

    wants_scores = False

    def __init__(self, next_layer: Mapping[int, int]) -> None:
        self._next_layer = next_layer
        self._last_picks: dict[int, Sequence[int]] = {}

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        """The next layer's last picks."""
        self._last_picks[layer] = picks
        return self._last_picks.get(self._next_layer.get(layer, -1), ())


class CrossLayer:
    """The next layer's norm and router, applied to the state that this layer routes on: the `width` likeliest."""

    wants_scores = True

    def __init__(self, width: int) -> None:
        self._width = width

    def candidates(self, layer: int, scores: np.ndarray | None, picks: Sequence[int]) -> Sequence[int]:
        """The experts of the highest scores."""
        if scores is None:
            return ()
        flat = scores.reshape(-1)
        width = min(self._width, flat.size)
        likely = np.argpartition(flat, -width)[-width:]
        return likely[np.argsort(-flat[likely], kind="stable")].tolist()


def make_guesser(guess: GuessName | Guesser, width: int, next_layer: Mapping[int, int], *, has_scores: bool) -> Guesser:
    """The guesser of that name; "auto" is cross-layer where the architecture's routers are known (has_scores)."""
    if not isinstance(guess, str):
        return guess
    if guess == "none" or width == 0:
        return NoGuess()
    if guess == "previous-token" or not has_scores:
        return PreviousToken(next_layer)
    return CrossLayer(width)
