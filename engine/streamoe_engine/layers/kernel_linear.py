"""Matrices of mlx-lm's modules multiplied by the C kernels: the CPU path of families whose layers C does not know.

Owns the modules that take the place of Linear, QuantizedLinear and the matrices of multi-head latent attention. They
keep MLX's arrays and hand their addresses to C; each call evaluates its input. Refuses to know architectures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..experts import Batch
from ..kernels import Kernels, Matrix
from ..manifest import DTYPE_BYTES, Field
from .kernel_math import KernelExpertMath
from .stored_matrix import stored_matrix

_NAMES = {mx.uint32: "U32", mx.bfloat16: "BF16", mx.float16: "F16", mx.float32: "F32"}


class KernelLinear(nn.Module):
    """Takes the place of a Linear, a QuantizedLinear, or an Embedding that is the head; `module` has its weights."""

    def __init__(self, kernels: Kernels, module: Any) -> None:
        super().__init__()
        self._kernels = kernels
        self._weights = _Weights(module)
        self._matrix = self._weights.matrix()

    def __call__(self, x: mx.array) -> mx.array:
        """x (..., inputs) float32, evaluated here, gives (..., outputs)."""
        rows = as_rows(x)
        out = np.empty((len(rows), self._matrix.rows), np.float32)
        self._kernels.matmul(self._matrix, rows, out)
        return mx.array(out).reshape(*x.shape[:-1], -1)


class KernelMultiLinear(nn.Module):
    """Takes the place of mlx-lm's MultiLinear, one matrix a head, and of its quantised form.

    Products by the transposed matrices stay with MLX: C multiplies along a row.
    """

    def __init__(self, kernels: Kernels, module: Any) -> None:
        super().__init__()
        self._kernels, self._module = kernels, [module]  # in a list, or its arrays would count as parameters twice
        self._weights = _Weights(module)
        self._matrices = self._weights.heads()

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array:
        """x (batch, heads or 1, tokens, inputs) gives (batch, heads, tokens, outputs); transpose as in mlx-lm."""
        if not transpose or x.ndim != 4 or x.shape[0] != 1:
            return self._module[0](x, transpose)
        tokens = x.shape[2]
        rows = as_rows(x).reshape(x.shape[1], tokens, -1)
        out = np.empty((len(self._matrices), tokens, self._matrices[0].rows), np.float32)
        for head, matrix in enumerate(self._matrices):
            self._kernels.matmul(matrix, rows[head if len(rows) > 1 else 0], out[head])
        return mx.array(out)[None]


class KernelExpertsOfMlx:
    """One layer's experts by the kernels, between MLX's arrays: see experts.ExpertMath."""

    def __init__(self, math: KernelExpertMath) -> None:
        self._math = math

    def one_token(self, x: mx.array, slots: Sequence[int], landed: Iterable[Sequence[int]]) -> mx.array:
        """x (1, width) gives (len(slots), width)."""
        return mx.array(self._math.one_token(as_rows(x), slots, landed))

    def chunk(self, x: mx.array, top_k: int, batches: Iterable[Batch]) -> mx.array:
        """x (tokens, width) gives (tokens * top_k, width)."""
        return mx.array(self._math.chunk(as_rows(x), top_k, batches))

    def together(self, x: mx.array, top_k: int, batches: Iterable[Batch]) -> mx.array:
        """x (sequences, width) gives (sequences * top_k, width)."""
        return mx.array(self._math.together(as_rows(x), top_k, batches))


class _Weights:
    """A module's matrix, described where MLX keeps it. Holds the arrays: a description is addresses only."""

    def __init__(self, module: Any) -> None:
        self._arrays = {leaf: module[leaf] for leaf in ("weight", "scales", "biases") if leaf in module}
        weight = self._arrays["weight"]
        self._cols = weight.shape[-1] * 32 // module.bits if "scales" in self._arrays else weight.shape[-1]
        self._bias = np.array(module["bias"].astype(mx.float32)) if "bias" in module else None
        self._fields = {leaf: Field(leaf, _NAMES[a.dtype], tuple(a.shape), 0) for leaf, a in self._arrays.items()}

    def matrix(self) -> Matrix:
        """The whole of it, (outputs, inputs)."""
        bias = 0 if self._bias is None else int(self._bias.__array_interface__["data"][0])
        return stored_matrix(self._fields, self._address, self._cols, bias)

    def heads(self) -> list[Matrix]:
        """One matrix a head, of (heads, outputs, inputs)."""
        one = {leaf: replace(field, shape=field.shape[1:]) for leaf, field in self._fields.items()}
        sizes = {leaf: prod(field.shape) * DTYPE_BYTES[field.dtype] for leaf, field in one.items()}

        def head(number: int) -> Matrix:
            return stored_matrix(one, lambda leaf: self._address(leaf) + number * sizes[leaf], self._cols)

        return [head(number) for number in range(self._fields["weight"].shape[0])]

    def _address(self, leaf: str) -> int:
        array = self._arrays[leaf]
        plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
        return int(np.array(plain, copy=False).__array_interface__["data"][0])


def as_rows(x: mx.array) -> np.ndarray:
    """x (..., width), evaluated, as (rows, width) float32; a view of MLX's memory where it lies in order."""
    return np.ascontiguousarray(np.array(x.astype(mx.float32), copy=False).reshape(-1, x.shape[-1]))
