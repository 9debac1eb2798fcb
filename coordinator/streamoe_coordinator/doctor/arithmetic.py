"""Whether this machine multiplies quantised matrices rightly: MLX against float64 arithmetic of our own.

Owns the reference, which unpacks the codes itself instead of asking MLX. Refuses to know models.
A wrong result here makes every answer wrong, without any error: it has happened on single chips with single releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .check import Check, graded

Matmul = Callable[..., Any]
# MLX in float32 has 4e-7; ideal rounding of a bfloat16 result 1.6e-3, accumulation in bfloat16 on x86 5e-2.
_FLOAT32_ERROR = 1e-5
_BFLOAT16_ERROR = 1e-2
_GROUP = 64
_EXPERTS, _ROWS, _COLUMNS = 4, 256, 2048
_PICKS = ((3, 0), (1, 1), (0, 2))


@dataclass(frozen=True, slots=True)
class _Case:
    """Quantised matrices (experts, rows, columns), inputs (tokens, columns) and all they mean in float64."""

    weight: Any
    scales: Any
    biases: Any
    bits: int
    inputs: Any
    exact_inputs: NDArray[np.float64]
    exact_weight: NDArray[np.float64]


def arithmetic_checks(
    gather_qmm: Matmul = mx.gather_qmm, quantized_matmul: Matmul = mx.quantized_matmul
) -> list[Check]:
    """All checks of the arithmetic group, on the given functions."""
    checks = []
    for bits in (4, 8):
        case = _case(bits, mx.float32)
        checks.append(_float32_check(f"gather_qmm, {bits} bits", partial(gather_error, case, gather_qmm)))
        checks.append(_float32_check(f"quantized_matmul, {bits} bits", partial(matmul_error, case, quantized_matmul)))
    return [*checks, _bfloat16_check(quantized_matmul)]


def gather_error(case: _Case, gather_qmm: Matmul) -> float:
    """Relative root-mean-square error of picked experts (tokens, picks) times each token's inputs."""
    picks = np.array(_PICKS, dtype=np.uint32)
    found = gather_qmm(
        case.inputs[:, None, None, :],
        case.weight,
        case.scales,
        case.biases,
        rhs_indices=mx.array(picks),
        transpose=True,
        group_size=_GROUP,
        bits=case.bits,
    )
    exact = np.einsum("tprc,tc->tpr", case.exact_weight[picks], case.exact_inputs)
    return _relative_error(found, exact[:, :, None, :])


def matmul_error(case: _Case, quantized_matmul: Matmul) -> float:
    """Relative root-mean-square error of one expert's matrix times all inputs."""
    found = quantized_matmul(
        case.inputs,
        case.weight[0],
        case.scales[0],
        case.biases[0],
        transpose=True,
        group_size=_GROUP,
        bits=case.bits,
    )
    return _relative_error(found, case.exact_inputs @ case.exact_weight[0].T)


def _float32_check(name: str, error_of: Callable[[], float]) -> Check:
    fix = "answers would be wrong: install another version of MLX, then run streamoe doctor again"
    try:
        error = error_of()
    except (RuntimeError, ValueError, TypeError) as refused:
        return graded("arithmetic", f"{name}, float32", f"MLX refuses: {refused}", fail=fix)
    wrong = not error < _FLOAT32_ERROR  # a NaN is wrong too
    measured = f"relative error {error:.1e}, at most {_FLOAT32_ERROR:g} is right"
    return graded("arithmetic", f"{name}, float32", measured, fail=fix if wrong else "")


def _bfloat16_check(quantized_matmul: Matmul) -> Check:
    name, fix = "quantized_matmul, 4 bits, bfloat16", "leave the computing type at float32, the default on this device"
    try:
        error = matmul_error(_case(4, mx.bfloat16), quantized_matmul)
    except (RuntimeError, ValueError, TypeError) as refused:
        return graded("arithmetic", name, f"MLX refuses: {refused}", warn=fix)
    coarse = not error < _BFLOAT16_ERROR
    return graded("arithmetic", name, f"relative error {error:.1e}", warn=fix if coarse else "")


def _case(bits: int, dtype: Any) -> _Case:
    random = np.random.default_rng(bits)
    inputs = mx.array(random.standard_normal((len(_PICKS), _COLUMNS)).astype(np.float32)).astype(dtype)
    packed = random.integers(0, 1 << 32, (_EXPERTS, _ROWS, _COLUMNS * bits // 32), dtype=np.uint32)
    grid = (_EXPERTS, _ROWS, _COLUMNS // _GROUP)
    scales = mx.array(random.uniform(0.5, 1.5, grid).astype(np.float32) / (1 << bits)).astype(dtype)
    biases = mx.array(-random.uniform(0.2, 0.8, grid).astype(np.float32)).astype(dtype)
    codes = unpacked(packed, bits).reshape(*grid, _GROUP)
    exact = codes * _float64(scales)[..., None] + _float64(biases)[..., None]
    weight = exact.reshape(_EXPERTS, _ROWS, _COLUMNS)
    return _Case(mx.array(packed), scales, biases, bits, inputs, _float64(inputs), weight)


def unpacked(packed: NDArray[np.uint32], bits: int) -> NDArray[np.float64]:
    """(..., words) of 32 / bits codes each, the lowest bits first, as (..., codes)."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = packed[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1).astype(np.float64)


def _float64(array: Any) -> NDArray[np.float64]:
    return np.array(array.astype(mx.float32)).astype(np.float64)


def _relative_error(found: Any, exact: NDArray[np.float64]) -> float:
    difference = _float64(found) - exact
    return float(np.sqrt(np.mean(difference**2) / np.mean(exact**2)))
