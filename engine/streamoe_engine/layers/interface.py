"""How a band's layers are run, whatever computes them: one interface, chosen at open."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

Want = Literal["nothing", "hidden", "last_logits", "all_logits"]


class State(Protocol):
    """What one sequence leaves in a band's layers; dropping it frees its memory."""


class Layers(Protocol):
    """Embedding (first band), layers, norm and head (last band)."""

    def new_state(self) -> Any:
        """The empty state of a new sequence."""

    def run(self, state: Any, inputs: np.ndarray, want: Want) -> np.ndarray | None:
        """inputs: (tokens,) ids, or (tokens, width) float32 hidden states. Moves state on.

        Returns None, hidden states (tokens, width), or logits (1 or tokens, vocabulary), float32. Raises ReadFailed.
        """

    def close(self) -> None:
        """End what the layers own: threads, arenas."""
