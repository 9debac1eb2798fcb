"""A described layer run through the C kernels, with a sequence's state of its own."""

from __future__ import annotations

import numpy as np

from streamoe_engine.kernels import Kernels
from streamoe_engine.kernels.layer_calls import AttentionLayer, GdnLayer, LayerCalls, LayerIO
from streamoe_engine.kernels.part_calls import SharedExpert
from tests.engine.kernels.oracle_layers import Outputs

CONTEXT = 320  # more than one block of keys
ROPE_BASE = 10000.0
_CACHE_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


class CLayer:
    """Runs one sequence through a layer; `state` holds what the sequence leaves."""

    def __init__(self, kernels: Kernels, layer: GdnLayer | AttentionLayer, shared: SharedExpert | None = None) -> None:
        self.calls, self.layer, self.shared, self.position = LayerCalls(kernels), layer, shared, 0
        if isinstance(layer, GdnLayer):
            shapes = [(3, layer.num_channels), (layer.value_heads, layer.value_dim, layer.key_dim)]
            self.state = [np.zeros(shape, np.float32) for shape in shapes]
        else:
            # A value that would be seen: rows nobody has filled must not be read.
            shape, dtype = (layer.kv_heads, CONTEXT, layer.dim), _CACHE_DTYPES[layer.cache_dtype]
            self.state = [np.full(shape, 0x7FC0 if dtype == np.uint16 else np.nan, dtype) for _ in range(2)]

    def run(self, hidden: np.ndarray, in_place: bool = False, has_guess: bool = True) -> Outputs:
        """The next tokens (tokens, width); in_place overwrites hidden."""
        tokens, layer = len(hidden), self.layer
        after, expert_input = hidden if in_place else np.empty_like(hidden), np.empty_like(hidden)
        routing = layer.routing
        routers = (routing.router, routing.next_router if has_guess else None)
        logits = [None if matrix is None else np.empty((tokens, matrix.rows), np.float32) for matrix in routers]
        io = LayerIO(np.ascontiguousarray(hidden), after, expert_input, logits[0], logits[1], self._scratch(tokens))
        if isinstance(layer, GdnLayer):
            self.calls.run_gdn(layer, io, *self.state)
        else:
            rope = np.empty((tokens, 2 * layer.rope_half), np.float32)
            positions = np.arange(self.position, self.position + tokens, dtype=np.int32)
            self.calls.rope_table(positions, layer.rope_half, ROPE_BASE, rope)
            self.calls.run_attention(layer, io, *self.state, self.position, rope)
        self.position += tokens
        return Outputs(after, expert_input, logits[0], logits[1], self._shared(expert_input))

    def _shared(self, x: np.ndarray) -> np.ndarray | None:
        if self.shared is None:
            return None
        out, scratch_bytes = np.empty_like(x), self.calls.shared_scratch_bytes(self.shared, len(x))
        self.calls.run_shared(self.shared, x, np.full(scratch_bytes, 0xFF, np.uint8), out)
        return out

    def _scratch(self, tokens: int) -> np.ndarray:
        if isinstance(self.layer, GdnLayer):
            num_bytes = self.calls.gdn_scratch_bytes(self.layer, tokens)
        else:
            num_bytes = self.calls.attention_scratch_bytes(self.layer, tokens, CONTEXT)
        return np.full(num_bytes, 0xFF, np.uint8)  # NaN wherever something is read before it is written
