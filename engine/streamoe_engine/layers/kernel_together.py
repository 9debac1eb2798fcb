"""One token of each of several sequences through a band's layers at once, by the C kernels.

Owns that step's loop: attention and gated delta by sequence, each a call on its own row and state; experts by their
union, each record read once. Every row has the bits of running its sequence alone. Refuses to know how experts come
to be in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..experts import ExpertStreamer
from ..guess import Guesser
from ..kernels.layer_calls import AttentionLayer, GdnLayer, LayerCalls, LayerIO
from .interface import BeforeLayer
from .kernel_routing import combine
from .kernel_state import AttentionState, GdnState, KernelState
from .together_guess import shared_candidates

if TYPE_CHECKING:
    from .kernel_layers import KernelLayer, StepBuffers


class KernelTogether:
    """Moves up to the buffers' rows of sequences on by one token each."""

    def __init__(
        self,
        calls: LayerCalls,
        layers: Sequence[KernelLayer],
        streamer: ExpertStreamer,
        guesser: Guesser,
        buffers: StepBuffers,
        rope_base: float,
    ) -> None:
        self._calls, self._layers, self._buffers, self._rope_base = calls, layers, buffers, rope_base
        self._streamer, self._guesser = streamer, guesser
        self._ios: dict[tuple[int, int], LayerIO] = {}

    def run(self, states: Sequence[KernelState], hidden: np.ndarray, before_layer: BeforeLayer | None) -> None:
        """hidden (sequences, width), the first rows of the buffers' own, through every layer in place.

        Moves the states on. Raises ReadFailed, and what before_layer raises.
        """
        ropes = self._ropes(np.array([state.position for state in states], dtype=np.int32))
        for at, layer in enumerate(self._layers):
            if before_layer is not None:
                before_layer(layer.number)
            for row, state in enumerate(states):
                self._mix(layer, row, state.layers[at], state.position, ropes)
            self._experts(layer, hidden)
        for state in states:
            state.position += 1

    def _mix(
        self,
        layer: KernelLayer,
        row: int,
        kept: GdnState | AttentionState,
        position: int,
        ropes: dict[int, np.ndarray],
    ) -> None:
        io = self._io(layer, row)
        if isinstance(layer.call, GdnLayer):
            assert isinstance(kept, GdnState)
            self._calls.run_gdn(layer.call, io, kept.conv, kept.memory)
        else:
            assert isinstance(kept, AttentionState)
            rope = ropes[layer.call.rope_half][row : row + 1]
            self._calls.run_attention(layer.call, io, kept.keys, kept.values, position, rope)

    def _experts(self, layer: KernelLayer, hidden: np.ndarray) -> None:
        rows, buffers, routing = len(hidden), self._buffers, layer.call.routing
        assert routing.router is not None
        x = buffers.expert_input[:rows]
        logits = buffers.router[:rows, : routing.router.rows]
        picks, weights = self._calls.route(logits, layer.top_k, normalise=layer.normalises)
        products = self._streamer.together(layer.number, x, picks, self._candidates(layer, picks))
        shared = None if layer.shared is None else buffers.shared[:rows]
        if layer.shared is not None and shared is not None:
            self._calls.run_shared(layer.shared, x, buffers.scratch, shared)
        combine(hidden, products.reshape(*picks.shape, -1), weights, shared)

    def _candidates(self, layer: KernelLayer, picks: np.ndarray) -> list[int]:
        following = layer.call.routing.next_router
        scores = None if following is None else self._buffers.guess[: len(picks), : following.rows]
        return shared_candidates(self._guesser, layer.number, picks, scores)

    def _io(self, layer: KernelLayer, row: int) -> LayerIO:
        key = layer.number, row
        if key not in self._ios:
            buffers, routing, one = self._buffers, layer.call.routing, slice(row, row + 1)
            assert routing.router is not None
            hidden = buffers.hidden[one]
            router = buffers.router[one, : routing.router.rows]
            guess = None if routing.next_router is None else buffers.guess[one, : routing.next_router.rows]
            self._ios[key] = LayerIO(hidden, hidden, buffers.expert_input[one], router, guess, buffers.scratch)
        return self._ios[key]

    def _ropes(self, positions: np.ndarray) -> dict[int, np.ndarray]:
        tables = {}
        for half in {layer.call.rope_half for layer in self._layers if isinstance(layer.call, AttentionLayer)}:
            tables[half] = np.empty((len(positions), 2 * half), np.float32)
            self._calls.rope_table(positions, half, self._rope_base, tables[half])
        return tables
