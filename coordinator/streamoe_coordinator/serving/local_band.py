"""A Band of this machine as RunsSequences.

Owns nothing: the band's caller closes it. Refuses to know how sequences are scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamoe_engine.band import Band, SequenceState, Want
from streamoe_engine.plan import Plan, PlanRequest, snapshot_bytes
from streamoe_engine.telemetry import Snapshot

from ..runs_tokens import BandStatus


class LocalBand:
    """All layers of a model, on this machine."""

    def __init__(self, band: Band) -> None:
        self._band = band

    @property
    def plan(self) -> Plan:
        """The plan it keeps."""
        return self._band.plan

    @property
    def ctx_tokens(self) -> int:
        """Tokens a sequence may have."""
        return self._band.ctx_tokens

    @property
    def chunk_tokens(self) -> int:
        """Most tokens of one run."""
        return self._band.chunk_tokens

    @property
    def num_sequences(self) -> int:
        """States that may be held at once."""
        return self._band.plan.sequences

    def new_state(self) -> SequenceState:
        """An empty sequence."""
        return self._band.new_state()

    def run(
        self, state: Any, inputs: np.ndarray, want: Want, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """As Band.run."""
        return self._band.run(state, inputs, want, before_layer=before_layer)

    def run_together(self, states: Sequence[Any], tokens: np.ndarray, want: Want) -> np.ndarray | None:
        """As Band.run_together."""
        return self._band.run_together(states, tokens, want)

    def release(self, state: SequenceState) -> None:
        """Give a state's memory back."""
        state.release()

    def snapshot(self, state: SequenceState) -> Any:
        """A copy of a state, cut to its tokens."""
        return self._band.snapshot(state)

    def restore(self, snapshot: Any) -> SequenceState:
        """A state of its own from a copy."""
        return self._band.restore(snapshot)

    def snapshot_bytes(self, position: int) -> int:
        """Bytes of a copy after `position` tokens."""
        plan = self._band.plan
        request = PlanRequest(
            plan.budget_bytes,
            plan.ctx_tokens,
            plan.kv,
            (plan.first_layer, plan.last_layer),
            chunk_tokens=plan.chunk_tokens,
            compute_dtype=plan.compute_dtype,
            backend=plan.backend,
        )
        return snapshot_bytes(self._band.manifest, request, position)

    def telemetry(self) -> Snapshot:
        """As Band.telemetry."""
        return self._band.telemetry()

    def bands(self) -> Sequence[BandStatus]:
        """The one there is."""
        plan, now = self.plan, self.telemetry()
        costs = (plan.budget_bytes, now.footprint_bytes, now.peak_bytes)
        return [BandStatus("local", plan.first_layer, plan.last_layer, *costs, plan.items, plan=plan)]
