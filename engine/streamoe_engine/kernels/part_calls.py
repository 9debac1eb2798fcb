"""What lies around a layer's matrices, as C calls: routing, the shared expert, sums, norms, rotations.

Owns the description of a shared expert. Refuses to know which layer asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .layer_structs import CSharedExpert, c_matrix, declare_layers
from .native import Expert, Kernels, Matrix, Rows, address_of, raw_address


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """The expert every token passes, its addresses absolute; scale: one output, its sigmoid weighs the result."""

    expert: Expert
    scale: Matrix | None = None
    c: CSharedExpert = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.scale is None or self.scale.rows == 1
        object.__setattr__(self, "c", CSharedExpert(self.expert.c, c_matrix(self.scale)))


class PartCalls:
    """Runs parts of layers on the thread pool of some Kernels."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._lib = kernels, declare_layers(kernels.lib)

    def run_shared(self, shared: SharedExpert, x: Rows, scratch: np.ndarray, out: Rows) -> None:
        """out (tokens, width) = the shared expert's weighted output for x (tokens, width)."""
        assert x.shape[1] == shared.expert.gate.cols and out.shape == (x.shape[0], shared.expert.down.rows)
        args = (x.shape[0], address_of(x), raw_address(scratch), address_of(out))
        self._lib.st_shared_expert_run(self._kernels.pool, shared.c, *args)

    def route(self, logits: Rows, top_k: int, *, normalise: bool) -> tuple[np.ndarray, Rows]:
        """logits (tokens, experts) give picks (tokens, k) int64, likeliest first, and weights (tokens, k) float32.

        Softmax over all experts, of equals the first; with normalise over the picks alone. A token's result is its own.
        """
        tokens, experts = logits.shape
        assert logits.dtype == np.float32 and logits.strides[1] == 4 and 0 < top_k <= experts
        picks, weights = np.empty((tokens, top_k), np.int64), np.empty((tokens, top_k), np.float32)
        args = (tokens, experts, top_k, normalise, raw_address(picks), raw_address(weights))
        self._lib.st_route(self._kernels.pool, raw_address(logits), logits.strides[0] // 4, *args)
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
        self._lib.st_rope_table(raw_address(positions), len(positions), half, base, address_of(out))
