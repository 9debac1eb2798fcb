"""Layers on the CPU: one C call up to a layer's routing, then its experts.

Owns the loop over a band's layers and the buffers of a step. Refuses to know how experts come to be in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..arena import ResidentArena
from ..experts import ExpertStreamer
from ..guess import Guesser
from ..kernels import Kernels
from ..kernels.layer_calls import AttentionLayer, GdnLayer, LayerCalls, LayerIO
from ..kernels.part_calls import SharedExpert
from ..plan_types import Plan
from ..state_snapshot import Arrays
from .aligned import aligned_zeros
from .interface import BeforeLayer, Want
from .kernel_head import KernelHead
from .kernel_routing import combine, needed_by_chunk
from .kernel_state import AttentionState, GdnState, KernelState, load, new_state, save
from .kernel_together import KernelTogether


@dataclass(frozen=True, slots=True)
class KernelLayer:
    """One layer: its C description, its shared expert, and how its router weighs."""

    number: int
    call: GdnLayer | AttentionLayer
    shared: SharedExpert | None
    top_k: int
    normalises: bool


@dataclass(frozen=True, slots=True)
class KernelEnds:
    """What comes before and after the layers: embed (ids to rows; first band), final norm and head (last band)."""

    embed: Callable[[np.ndarray], np.ndarray] | None
    norm: np.ndarray | None
    norm_eps: float
    head: KernelHead | None


class StepBuffers:
    """The arrays of one step of up to chunk_tokens, shared by all layers."""

    def __init__(self, layers: list[KernelLayer], calls: LayerCalls, chunk_tokens: int, ctx_tokens: int) -> None:
        width = layers[0].call.out.rows
        experts = max(layer.call.routing.router.rows for layer in layers if layer.call.routing.router)
        self.hidden, self.expert_input, self.shared = (aligned_zeros((chunk_tokens, width)) for _ in range(3))
        self.router, self.guess = (aligned_zeros((chunk_tokens, experts)) for _ in range(2))
        self.scratch = aligned_zeros((_scratch_bytes(layers, calls, chunk_tokens, ctx_tokens),), np.uint8)
        self._one_token = {layer.number: self._io(layer, 1) for layer in layers}

    def io(self, layer: KernelLayer, num_tokens: int) -> LayerIO:
        """The arrays of a call that moves the first num_tokens rows of hidden past the layer's mix, in place."""
        return self._one_token[layer.number] if num_tokens == 1 else self._io(layer, num_tokens)

    def _io(self, layer: KernelLayer, tokens: int) -> LayerIO:
        hidden, routing = self.hidden[:tokens], layer.call.routing
        assert routing.router is not None
        guess = None if routing.next_router is None else self.guess[:tokens, : routing.next_router.rows]
        router = self.router[:tokens, : routing.router.rows]
        return LayerIO(hidden, hidden, self.expert_input[:tokens], router, guess, self.scratch)


def _scratch_bytes(layers: list[KernelLayer], calls: LayerCalls, tokens: int, ctx_tokens: int) -> int:
    needs = [0]
    for layer in layers:
        if isinstance(layer.call, GdnLayer):
            needs.append(calls.gdn_scratch_bytes(layer.call, tokens))
        else:
            needs.append(calls.attention_scratch_bytes(layer.call, tokens, ctx_tokens))
        if layer.shared is not None:
            needs.append(calls.shared_scratch_bytes(layer.shared, tokens))
    return max(needs)


class KernelLayers:
    """A band computed by the C kernels: see interface.Layers."""

    def __init__(
        self,
        kernels: Kernels,
        layers: list[KernelLayer],
        ends: KernelEnds,
        streamer: ExpertStreamer,
        guesser: Guesser,
        rope_base: float,
        plan: Plan,
        arena: ResidentArena,
    ) -> None:
        self._arena = arena  # descriptions hold addresses only
        self._kernels, self._calls, self._layers, self._ends = kernels, LayerCalls(kernels), layers, ends
        self._streamer, self._guesser = streamer, guesser
        self._rope_base, self._ctx_tokens = rope_base, plan.ctx_tokens
        self._buffers = StepBuffers(layers, self._calls, plan.chunk_tokens, plan.ctx_tokens)
        self._together = KernelTogether(self._calls, layers, streamer, guesser, self._buffers, rope_base)

    def new_state(self) -> KernelState:
        return new_state([layer.call for layer in self._layers], self._ctx_tokens)

    def run(
        self, state: KernelState, inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        hidden = self._buffers.hidden[: len(inputs)]
        self._enter(inputs, hidden)
        ropes = self._ropes(state.position, len(hidden))
        for layer, kept in zip(self._layers, state.layers, strict=True):
            if before_layer is not None:
                before_layer(layer.number)
            self._run_layer(layer, kept, hidden, state.position, ropes)
        state.position += len(hidden)
        return self._leave(hidden, want)

    def run_together(
        self, states: Sequence[KernelState], inputs: np.ndarray, want: Want, before_layer: BeforeLayer | None = None
    ) -> np.ndarray | None:
        hidden = self._buffers.hidden[: len(inputs)]
        self._enter(inputs, hidden)
        self._together.run(states, hidden, before_layer)
        return self._leave(hidden, "all_logits" if want == "last_logits" else want)

    def save(self, state: KernelState) -> dict[int, Arrays]:
        return save(state, [layer.number for layer in self._layers])

    def load(self, layers: dict[int, Arrays], position: int) -> KernelState:
        return load(self.new_state(), [layers[layer.number] for layer in self._layers], position)

    def close(self) -> None:
        self._kernels.close()

    def _run_layer(
        self,
        layer: KernelLayer,
        kept: GdnState | AttentionState,
        hidden: np.ndarray,
        position: int,
        ropes: dict[int, np.ndarray],
    ) -> None:
        io = self._buffers.io(layer, len(hidden))
        if isinstance(layer.call, GdnLayer):
            assert isinstance(kept, GdnState)
            self._calls.run_gdn(layer.call, io, kept.conv, kept.memory)
        else:
            assert isinstance(kept, AttentionState)
            rope = ropes[layer.call.rope_half]
            self._calls.run_attention(layer.call, io, kept.keys, kept.values, position, rope)
        self._run_experts(layer, hidden, io)

    def _run_experts(self, layer: KernelLayer, hidden: np.ndarray, io: LayerIO) -> None:
        assert io.router_logits is not None
        picks, weights = self._calls.route(io.router_logits, layer.top_k, normalise=layer.normalises)
        if len(hidden) == 1:
            chosen = picks[0].tolist()

            def candidates() -> Sequence[int]:
                return self._guesser.candidates(layer.number, io.guess_logits, chosen)

            products = self._streamer.token(layer.number, io.expert_input, chosen, candidates)
            self._calls.combine(hidden, products, weights)
            return
        shared = None if layer.shared is None else self._buffers.shared[: len(hidden)]
        ahead = () if io.guess_logits is None else needed_by_chunk(io.guess_logits, layer.top_k)
        products = self._streamer.chunk(layer.number, io.expert_input, picks, ahead)
        if layer.shared is not None and shared is not None:
            self._calls.run_shared(layer.shared, io.expert_input, self._buffers.scratch, shared)
        combine(hidden, products.reshape(*picks.shape, -1), weights, shared)

    def _ropes(self, position: int, num_tokens: int) -> dict[int, np.ndarray]:
        """Rotation tables of these tokens, by half width."""
        positions = np.arange(position, position + num_tokens, dtype=np.int32)
        tables = {}
        for half in {layer.call.rope_half for layer in self._layers if isinstance(layer.call, AttentionLayer)}:
            tables[half] = np.empty((num_tokens, 2 * half), np.float32)
            self._calls.rope_table(positions, half, self._rope_base, tables[half])
        return tables

    def _enter(self, inputs: np.ndarray, hidden: np.ndarray) -> None:
        if inputs.ndim == 1:
            assert self._ends.embed is not None, "the band has checked that it is the first"
            hidden[:] = self._ends.embed(inputs)
        else:
            hidden[:] = inputs

    def _leave(self, hidden: np.ndarray, want: Want) -> np.ndarray | None:
        if want == "nothing":
            return None
        if want == "hidden":
            return hidden.copy()
        norm, head = self._ends.norm, self._ends.head
        assert norm is not None and head is not None, "the band has checked that it is the last"
        last = hidden if want == "all_logits" else hidden[-1:]
        self._calls.rms_norm(last, norm, self._ends.norm_eps, last)
        return head(last)
