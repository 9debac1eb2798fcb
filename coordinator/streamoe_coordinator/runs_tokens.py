"""What an answer needs of whatever runs its tokens: one band on this machine, or a chain of bands on several.

`streamoe_engine.band.Band` and `cluster.chain.Chain` are both one. Nothing here asks which.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from streamoe_engine.band import Want
from streamoe_engine.telemetry import Snapshot


class RunsTokens(Protocol):
    """Layers 0 to the last, and the head; see streamoe_engine.band.Band."""

    @property
    def ctx_tokens(self) -> int:
        """The context that the plan has room for, in tokens, a sequence."""
        ...

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one `run`."""
        ...

    def new_state(self) -> Any:
        """An empty sequence."""
        ...

    def run(self, state: Any, inputs: np.ndarray, want: Want) -> np.ndarray | None:
        """Run (tokens,) int32, at most chunk_tokens."""
        ...

    def telemetry(self) -> Snapshot:
        """Counts so far."""
        ...
