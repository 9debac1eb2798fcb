"""Whole layers as one C call each: what streamoe_layers.h declares, as Python calls.

Owns the mirrored structs. Refuses to know where weights come from, which family a layer belongs to, and the experts.
Descriptions are frozen and keep the small vectors they name alive; packed weights are addresses, kept alive by the
caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from .layer_structs import (
    CACHE_TYPES,
    CAttentionLayer,
    CGdnLayer,
    CLayerIO,
    CRouting,
    CSequence,
    CSharedExpert,
    declare_layers,
)
from .native import Expert, Kernels, Matrix, Rows, address_of

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
        c = CRouting(address_of(self.norm), _address_or_null(self.next_norm), _c(self.router), _c(self.next_router))
        object.__setattr__(self, "c", c)


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """The expert every token passes, its addresses absolute; scale: one output, its sigmoid weighs the result."""

    expert: Expert
    scale: Matrix | None = None
    c: CSharedExpert = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.scale is None or self.scale.rows == 1
        object.__setattr__(self, "c", CSharedExpert(self.expert.c, _c(self.scale)))


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
            z=_c(self.z),
            b=self.b.c,
            a=_c(self.a),
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
        c = CLayerIO(self.num_tokens, *map(address_of, arrays), *logits, _raw_address(self.scratch))
        object.__setattr__(self, "c", c)

    @property
    def num_tokens(self) -> int:
        return self.hidden.shape[0]


class LayerCalls:
    """Runs described layers on the thread pool of some Kernels."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._lib = kernels, declare_layers(kernels.lib)

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
        c = CSequence(_raw_address(keys), _raw_address(values), context, position, address_of(rope))
        self._lib.st_attention_layer_run(self._kernels.pool, layer.c, io.c, c)

    def run_shared(self, shared: SharedExpert, x: Rows, scratch: np.ndarray, out: Rows) -> None:
        """out (tokens, width) = the shared expert's weighted output for x (tokens, width)."""
        assert x.shape[1] == shared.expert.gate.cols and out.shape == (x.shape[0], shared.expert.down.rows)
        args = (x.shape[0], address_of(x), _raw_address(scratch), address_of(out))
        self._lib.st_shared_expert_run(self._kernels.pool, shared.c, *args)

    def route(self, logits: Rows, top_k: int, *, normalise: bool) -> tuple[np.ndarray, Rows]:
        """logits (tokens, experts) give picks (tokens, k) int64, likeliest first, and weights (tokens, k) float32.

        Softmax over all experts, of equals the first; with normalise over the picks alone. A token's result is its own.
        """
        tokens, experts = logits.shape
        assert logits.dtype == np.float32 and logits.strides[1] == 4 and 0 < top_k <= experts
        picks, weights = np.empty((tokens, top_k), np.int64), np.empty((tokens, top_k), np.float32)
        args = (tokens, experts, top_k, normalise, _raw_address(picks), _raw_address(weights))
        self._lib.st_route(self._kernels.pool, _raw_address(logits), logits.strides[0] // 4, *args)
        return picks, weights

    def combine(self, hidden: Rows, products: Rows, weights: Rows) -> None:
        """hidden (1, width) += products (k, width) weighted with weights (1, k) and summed in their order.

        One row more of products is the shared expert's and counts in full. The bits of kernel_routing.combine.
        """
        picks, width = weights.size, hidden.shape[1]
        assert hidden.shape[0] == 1 and products.shape[1] == width and len(products) - picks in (0, 1)
        rows = address_of(products)
        shared = rows + picks * width * 4 if len(products) > picks else None
        args = (rows, address_of(weights), picks, width, shared, address_of(hidden))
        self._lib.st_combine(self._kernels.pool, *args)

    def rms_norm(self, x: Rows, weight: Rows, eps: float, out: Rows) -> None:
        """out = x / sqrt(mean(x^2) + eps) * weight for each row of x (rows, width); out may be x."""
        assert x.shape == out.shape and weight.shape == (x.shape[1],) and x.shape[1] % 16 == 0
        args = (address_of(x), address_of(weight), eps, *x.shape, address_of(out))
        self._lib.st_rms_norm(self._kernels.pool, *args)

    def rope_table(self, positions: np.ndarray, half: int, base: float, out: Rows) -> None:
        """out (tokens, 2 * half): cosines, then sines of positions (tokens,) int32 * base^(-i / half)."""
        assert positions.dtype == np.int32 and out.shape == (len(positions), 2 * half)
        self._lib.st_rope_table(_raw_address(positions), len(positions), half, base, address_of(out))


def _check_io(routing: Routing, width: int, io: LayerIO) -> None:
    assert io.hidden.shape[1] == width == routing.norm.size
    for matrix, logits in ((routing.router, io.router_logits), (routing.next_router, io.guess_logits)):
        assert logits is None or (matrix is not None and logits.shape == (io.num_tokens, matrix.rows))
    assert routing.router is None or io.router_logits is not None


def _is_head(dim: int) -> bool:
    return dim % 16 == 0 and 0 < dim <= MAX_HEAD_DIM


def _c(matrix: Matrix | None) -> Any:
    return type(CRouting().router)() if matrix is None else matrix.c


def _address_or_null(array: Rows | None) -> int | None:
    return None if array is None else address_of(array)


def _raw_address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
