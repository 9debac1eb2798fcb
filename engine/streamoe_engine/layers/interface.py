"""How a band's layers are run, whatever computes them: one interface, chosen at open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

Want = Literal["nothing", "hidden", "last_logits", "all_logits"]
BeforeLayer = Callable[[int], None]


class State(Protocol):
    """What one sequence leaves in a band's layers; dropping it frees its memory."""


class Layers(Protocol):
    """Embedding (first band), layers, norm and head (last band)."""

    def new_state(self) -> Any:
        """The empty state of a new sequence."""

    def run(
        self, state: Any, inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        """inputs: (tokens,) ids, or (tokens, width) float32 hidden states. Moves state on.

        Returns None, hidden states (tokens, width), or logits (1 or tokens, vocabulary), float32. Raises ReadFailed,
        and what before_layer raises.
        """

    def run_together(
        self, states: Sequence[Any], inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        """One token of each of several sequences, row i of inputs that of states[i]; results as of run, a row each.

        "last_logits" means the same as "all_logits": (states, vocabulary). Raises as run.
        """

    def save(self, state: Any) -> dict[int, dict[str, np.ndarray]]:
        """Copies of a state's arrays by layer number and name, cut to the tokens run: see state_snapshot."""

    def load(self, layers: dict[int, dict[str, np.ndarray]], position: int) -> Any:
        """A state of its own from what `save` gave at `position`, already checked."""

    def close(self) -> None:
        """End what the layers own: threads, arenas."""
