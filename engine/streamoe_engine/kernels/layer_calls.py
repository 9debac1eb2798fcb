"""Whole layers as one C call each: what streamoe_layers.h declares, as Python calls.

Owns the mirrored structs. Refuses to know where weights come from, which family a layer belongs to, and the experts.
Descriptions are frozen and keep the small vectors they name alive; packed weights are addresses, kept alive by the
caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from .layer_structs import (
    CACHE_TYPES,
    CAttentionLayer,
    CGdnLayer,
    CLayerIO,
    CRouting,
    CSequence,
    c_matrix,
)
from .native import Matrix, Rows, address_of, raw_address
from .part_calls import PartCalls, SharedExpert

CONV_TAPS: Final = 4  # ST_CONV_TAPS
MAX_HEAD_DIM: Final = 256  # ST_MAX_HEAD_DIM
QkNorm = Literal["none", "head", "width"]
_QK_NORMS: Final[tuple[QkNorm, ...]] = ("none", "head", "width")


@dataclass(frozen=True, slots=True)
class Routing:
    """A layer's second norm (width,) and router; the next layer's too where its experts are to be guessed."""

    norm: Rows
    router: Matrix | None = None
    next_norm: Rows | None = None
    next_router: Matrix | None = None
    c: CRouting = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert (self.next_norm is None) == (self.next_router is None)
        c = CRouting(
            address_of(self.norm), _address_or_null(self.next_norm), c_matrix(self.router), c_matrix(self.next_router)
        )
        object.__setattr__(self, "c", c)


@dataclass(frozen=True, slots=True)
class GdnLayer:
    """Linear attention. qkv, z, b, a: the input projections; with is_interleaved, qkv holds qwen3_next's
    in_proj_qkvz and b its in_proj_ba, while z and a are None.

    conv_weight (4, channels), oldest tap first; norm_weight (value_dim,); a_log, dt_bias (value_heads,); all float32.
    """

    input_norm: Rows
    routing: Routing
    norm_eps: float
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    qkv: Matrix
    z: Matrix | None
    b: Matrix
    a: Matrix | None
    out: Matrix
    conv_weight: Rows
    norm_weight: Rows
    a_log: Rows
    dt_bias: Rows
    is_interleaved: bool = False
    c: CGdnLayer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gate = self.value_heads * self.value_dim
        assert self.value_heads % self.key_heads == 0 and _is_head(self.key_dim) and _is_head(self.value_dim)
        assert self.conv_weight.shape == (CONV_TAPS, self.num_channels) and self.norm_weight.shape == (self.value_dim,)
        assert self.a_log.shape == self.dt_bias.shape == (self.value_heads,)
        assert self.is_interleaved == (self.z is None) == (self.a is None)
        assert self.qkv.rows == self.num_channels + (gate if self.is_interleaved else 0)
        assert self.b.rows == self.value_heads * (2 if self.is_interleaved else 1) and self.out.cols == gate
        object.__setattr__(self, "c", self._mirror())

    @property
    def num_channels(self) -> int:
        """Width of q, k and v together: what the convolution sees."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def _mirror(self) -> CGdnLayer:
        return CGdnLayer(
            width=self.out.rows,
            input_norm=address_of(self.input_norm),
            routing=self.routing.c,
            norm_eps=self.norm_eps,
            interleaved=self.is_interleaved,
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            qkv=self.qkv.c,
            z=c_matrix(self.z),
            b=self.b.c,
            a=c_matrix(self.a),
            out=self.out.c,
            conv_weight=address_of(self.conv_weight),
            norm_weight=address_of(self.norm_weight),
            a_log=address_of(self.a_log),
            dt_bias=address_of(self.dt_bias),
        )


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """Softmax attention. is_gated: q gives each head's query and then its gate.

    qk_norm "head": q_norm and k_norm (dim,) for each head; "width": (heads * dim,) and (kv_heads * dim,).
    rope_half: pairs that are rotated. cache_dtype: of the cache's arrays, "F32", "F16" or "BF16".
    """

    input_norm: Rows
    routing: Routing
    norm_eps: float
    heads: int
    kv_heads: int
    dim: int
    rope_half: int
    q: Matrix
    k: Matrix
    v: Matrix
    out: Matrix
    qk_norm: QkNorm = "none"
    q_norm: Rows | None = None
    k_norm: Rows | None = None
    is_gated: bool = False
    cache_dtype: str = "F32"
    c: CAttentionLayer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.heads % self.kv_heads == 0 and _is_head(self.dim) and 2 * self.rope_half <= self.dim
        assert self.q.rows == self.heads * self.dim * (2 if self.is_gated else 1)
        assert self.k.rows == self.v.rows == self.kv_heads * self.dim and self.out.cols == self.heads * self.dim
        for norm, heads in ((self.q_norm, self.heads), (self.k_norm, self.kv_heads)):
            size = {"none": None, "head": self.dim, "width": heads * self.dim}[self.qk_norm]
            assert (None if norm is None else norm.size) == size
        object.__setattr__(self, "c", self._mirror())

    def _mirror(self) -> CAttentionLayer:
        return CAttentionLayer(
            width=self.out.rows,
            input_norm=address_of(self.input_norm),
            routing=self.routing.c,
            norm_eps=self.norm_eps,
            gated=self.is_gated,
            qk_norm=_QK_NORMS.index(self.qk_norm),
            cache_type=CACHE_TYPES[self.cache_dtype][0],
            heads=self.heads,
            kv_heads=self.kv_heads,
            dim=self.dim,
            rope_half=self.rope_half,
            scale=self.dim**-0.5,
            q=self.q.c,
            k=self.k.c,
            v=self.v.c,
            out=self.out.c,
            q_norm=_address_or_null(self.q_norm),
            k_norm=_address_or_null(self.k_norm),
        )


@dataclass(frozen=True, slots=True)
class LayerIO:
    """The arrays of one call, float32: hidden, after and expert_input (tokens, width); after may be hidden itself.

    router_logits, guess_logits (tokens, experts) or None. scratch: as many bytes as LayerCalls says for the largest
    call; not looked at again in each call, where asking C would cost 20 us.
    """

    hidden: Rows
    after: Rows
    expert_input: Rows
    router_logits: Rows | None
    guess_logits: Rows | None
    scratch: np.ndarray
    c: CLayerIO = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.hidden.shape == self.after.shape == self.expert_input.shape
        assert self.scratch.flags.c_contiguous
        arrays = (self.hidden, self.after, self.expert_input)
        logits = (_address_or_null(self.router_logits), _address_or_null(self.guess_logits))
        c = CLayerIO(self.num_tokens, *map(address_of, arrays), *logits, raw_address(self.scratch))
        object.__setattr__(self, "c", c)

    @property
    def num_tokens(self) -> int:
        return self.hidden.shape[0]


class LayerCalls(PartCalls):
    """Runs described layers, and what lies between them, on the thread pool of some Kernels."""

    def gdn_scratch_bytes(self, layer: GdnLayer, num_tokens: int) -> int:
        """Scratch of calls with up to num_tokens tokens."""
        return int(self._lib.st_gdn_layer_scratch(layer.c, num_tokens))

    def attention_scratch_bytes(self, layer: AttentionLayer, num_tokens: int, ctx_tokens: int) -> int:
        """Scratch of calls with up to num_tokens tokens in sequences of up to ctx_tokens."""
        return int(self._lib.st_attention_layer_scratch(layer.c, num_tokens, ctx_tokens))

    def shared_scratch_bytes(self, shared: SharedExpert, num_tokens: int) -> int:
        """Scratch of calls with up to num_tokens tokens."""
        return int(self._lib.st_shared_expert_scratch(shared.c, num_tokens))

    def run_gdn(self, layer: GdnLayer, io: LayerIO, conv_state: Rows, state: Rows) -> None:
        """conv_state (3, channels) and state (value_heads, value_dim, key_dim), float32, move on by io's tokens."""
        _check_io(layer.routing, layer.out.rows, io)
        assert conv_state.shape == (CONV_TAPS - 1, layer.num_channels)
        assert state.shape == (layer.value_heads, layer.value_dim, layer.key_dim)
        args = (layer.c, io.c, address_of(conv_state), address_of(state))
        self._lib.st_gdn_layer_run(self._kernels.pool, *args)

    def run_attention(
        self, layer: AttentionLayer, io: LayerIO, keys: np.ndarray, values: np.ndarray, position: int, rope: Rows
    ) -> None:
        """keys, values (kv_heads, context, dim) in the layer's cache_dtype (BF16 as uint16), `position` rows filled.

        Fills the rows of io's tokens. rope: rope_table of these tokens.
        """
        _check_io(layer.routing, layer.out.rows, io)
        context, dtype = keys.shape[1], CACHE_TYPES[layer.cache_dtype][1]
        assert keys.shape == values.shape == (layer.kv_heads, context, layer.dim)
        assert keys.dtype == values.dtype == dtype
        assert keys.flags.c_contiguous and values.flags.c_contiguous and position + io.num_tokens <= context
        assert rope.shape == (io.num_tokens, 2 * layer.rope_half)
        c = CSequence(raw_address(keys), raw_address(values), context, position, address_of(rope))
        self._lib.st_attention_layer_run(self._kernels.pool, layer.c, io.c, c)


def _check_io(routing: Routing, width: int, io: LayerIO) -> None:
    assert io.hidden.shape[1] == width == routing.norm.size
    for matrix, logits in ((routing.router, io.router_logits), (routing.next_router, io.guess_logits)):
        assert logits is None or (matrix is not None and logits.shape == (io.num_tokens, matrix.rows))
    assert routing.router is None or io.router_logits is not None


def _is_head(dim: int) -> bool:
    return dim % 16 == 0 and 0 < dim <= MAX_HEAD_DIM


def _address_or_null(array: Rows | None) -> int | None:
    return None if array is None else address_of(array)
