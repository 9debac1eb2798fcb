"""Random matrices in MLX's affine packing, with the float64 weights they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamoe_engine.kernels import Matrix

AFFINE_BITS, GROUPS, DTYPES = (2, 3, 4, 5, 6, 8), (32, 64, 128), ("F32", "BF16", "F16")
# Everything `Matrix` takes: (bits, group, scale dtype).
PACKINGS = [(bits, group, dtype) for bits in AFFINE_BITS for group in GROUPS for dtype in DTYPES]
PACKINGS += [(32, 32, "F32"), (16, 32, "BF16"), (16, 32, "F16")]

# Copies bytes to where a test wants them, and says the address.
Place = Callable[[np.ndarray], int]


@dataclass(frozen=True)
class Packed:
    """A matrix and its exact weights (rows, cols); `kept` owns the memory behind the addresses."""

    matrix: Matrix
    weights: np.ndarray
    kept: tuple[np.ndarray, ...]


def stored(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """`values` as they lie in a file, and as the float64 they then mean."""
    if dtype == "BF16":
        halves = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return halves, (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    made = np.ascontiguousarray(values.astype({"F32": np.float32, "F16": np.float16}[dtype]))
    return made, made.astype(np.float64)


def pack_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes (rows, cols) as rows of a little-endian bit stream."""
    single = (codes[:, :, None] >> np.arange(bits)) & 1
    return np.packbits(single.astype(np.uint8).reshape(len(codes), -1), axis=1, bitorder="little")


def random_matrix(
    random: np.random.Generator, rows: int, cols: int, packing: tuple[int, int, str], place: Place | None = None
) -> Packed:
    """A matrix with weights of about unit size; its parts lie where `place` puts them."""
    bits, group, dtype = packing
    if bits >= 16:
        parts, weights = stored(random.standard_normal((rows, cols)), dtype)
        arrays = (parts,)
    else:
        codes = random.integers(0, 2**bits, (rows, cols))
        scales, exact_scales = stored(random.uniform(-2, 2, (rows, cols // group)) / 2**bits, dtype)
        biases, exact_biases = stored(random.uniform(-1, 1, (rows, cols // group)), dtype)
        weights = codes * np.repeat(exact_scales, group, 1) + np.repeat(exact_biases, group, 1)
        arrays = (pack_codes(codes, bits), scales, biases)
    addresses = [place(array) if place else array.ctypes.data for array in arrays]
    return Packed(Matrix(bits, group, rows, cols, dtype, *addresses), weights, arrays)


def relative_error(out: np.ndarray, x: np.ndarray, weights: np.ndarray) -> float:
    """The largest error of out against x @ weights.T in float64, in units of the norms' product."""
    norms = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(weights, axis=1)
    return float(np.max(np.abs(out - x.astype(np.float64) @ weights.T) / norms))
