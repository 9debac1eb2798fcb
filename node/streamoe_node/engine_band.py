"""The engine's band as the core needs it.

Owns the translation, and keeps layer-addressed snapshots as the engine makes them. Refuses to know sessions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamoe_engine.band import Band, SequenceState
from streamoe_engine.state_snapshot import StateSnapshot

from .ports import BandCounts, BandWant


class EngineBand:
    """A BandPort over an open Band; it does not close it."""

    def __init__(self, band: Band) -> None:
        self._band, self._plan = band, band.plan
        self.ctx_tokens, self.chunk_tokens = band.plan.ctx_tokens, band.plan.chunk_tokens
        self.width, self.vocab_size = band.manifest.hidden_size, band.manifest.vocab_size
        self.is_first = band.plan.first_layer == 0
        self.is_last = band.plan.last_layer == band.plan.num_layers - 1

    def new_state(self) -> SequenceState:
        """An empty sequence."""
        return self._band.new_state()

    def run(
        self,
        state: SequenceState,
        inputs: np.ndarray,
        want: BandWant,
        *,
        before_layer: Callable[[int], None] | None = None,
    ) -> np.ndarray | None:
        """As Band.run."""
        return self._band.run(state, inputs, want, before_layer=before_layer)

    def release(self, state: SequenceState) -> None:
        """As SequenceState.release."""
        state.release()

    def snapshot(self, state: SequenceState) -> StateSnapshot:
        """As Band.snapshot."""
        return self._band.snapshot(state)

    def restore(self, snapshot: StateSnapshot) -> SequenceState:
        """As Band.restore."""
        return self._band.restore(snapshot)

    def counts(self) -> BandCounts:
        """As Band.sums. Plain numbers that the compute thread changes: a look from elsewhere is a moment off."""
        return BandCounts(*self._band.sums())
