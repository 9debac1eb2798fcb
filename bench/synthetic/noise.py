"""Random values for the tensors, each from its own stream, so that any tensor can be made again alone.

Owns distributions and the two rounding formats (bfloat16, affine 8-bit). Refuses to know which tensor is which.
Big tensors come in pieces of at most PIECE_BYTES; drawing in pieces gives the same values as drawing at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .shapes import GROUP

PIECE_BYTES = 16 * 2**20
CODE_STD = np.sqrt((16**2 - 1) / 12)  # of a uniform 4-bit code
CODE_MEAN = 7.5


def generator_for(seed: int, name: str) -> np.random.Generator:
    """The random stream that belongs to one tensor of one seed."""
    return np.random.Generator(np.random.PCG64DXSM([seed, *name.encode()]))


def random_bytes(generator: np.random.Generator, num_bytes: int) -> NDArray[np.uint8]:
    """Uniform bytes; a whole number of 8-byte draws is consumed."""
    draws = generator.bit_generator.random_raw((num_bytes + 7) // 8)
    return np.asarray(draws, np.uint64).view(np.uint8)[:num_bytes]


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float32 to the bits of bfloat16, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_floats(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The bits of bfloat16 to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def as_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 rounded to what bfloat16 can hold."""
    return bf16_floats(bf16_bits(values))


def code_pieces(seed: int, name: str, num_bytes: int) -> Iterator[NDArray[np.uint8]]:
    """Uniform 4-bit codes, two a byte, in pieces."""
    generator = generator_for(seed, name)
    for start in range(0, num_bytes, PIECE_BYTES):
        yield random_bytes(generator, min(PIECE_BYTES, num_bytes - start))


def scale_pieces(seed: int, name: str, count: int, std: float) -> Iterator[NDArray[np.uint16]]:
    """bfloat16 scales that give uniform 4-bit codes the standard deviation std, 10 % apart, in pieces."""
    generator, piece = generator_for(seed, name + ".scales"), PIECE_BYTES // 4
    for start in range(0, count, piece):
        spread = np.float32(0.1) * generator.standard_normal(min(piece, count - start), dtype=np.float32)
        yield bf16_bits(np.exp(spread) * np.float32(std / CODE_STD))


def bias_pieces(seed: int, name: str, count: int, std: float) -> Iterator[NDArray[np.uint16]]:
    """The bfloat16 biases that centre the codes of scale_pieces on zero."""
    for scales in scale_pieces(seed, name, count, std):
        yield bf16_bits(np.float32(-CODE_MEAN) * bf16_floats(scales))


def quantize_8bit(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint16]]:
    """Affine 8-bit in groups: codes of values' shape (rows, columns), bfloat16 scales and biases (rows, groups)."""
    groups = values.reshape(len(values), -1, GROUP)
    low, high = groups.min(-1), groups.max(-1)
    scales, biases = bf16_bits((high - low) / 255), bf16_bits(low)
    codes = np.rint((groups - bf16_floats(biases)[..., None]) / bf16_floats(scales)[..., None])
    return np.clip(codes, 0, 255).astype(np.uint8).reshape(values.shape), scales, biases


def dequantize_8bit(
    codes: NDArray[np.uint8], scales: NDArray[np.uint16], biases: NDArray[np.uint16]
) -> NDArray[np.float32]:
    """What the codes of quantize_8bit stand for: (rows, columns) float32."""
    groups = codes.reshape(len(codes), -1, GROUP).astype(np.float32)
    values = groups * bf16_floats(scales)[..., None] + bf16_floats(biases)[..., None]
    return values.reshape(codes.shape)


def router_rows(seed: int, name: str, rows: int, columns: int, skew: float, std: float) -> NDArray[np.float32]:
    """Router weights (rows, columns) float32 with log-normal row norms: a few experts take far more picks.

    skew: sigma of the log-norm (0: even use). std: median standard deviation of a router logit.
    """
    generator = generator_for(seed, name)
    weights = generator.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(columns))
    return weights * (std * np.exp(skew * generator.standard_normal((rows, 1)))).astype(np.float32)


def delta_vectors(generator: np.random.Generator, heads: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A_log and dt_bias (heads,) float32: decay 1 to 16, time step 0.001 to 0.1 through the softplus, in logs."""
    a_log = np.log(generator.uniform(1.0, 16.0, heads)).astype(np.float32)
    step = np.exp(generator.uniform(np.log(1e-3), np.log(0.1), heads))
    return a_log, (step + np.log(-np.expm1(-step))).astype(np.float32)


def conv_kernels(generator: np.random.Generator, channels: int, width: int) -> NDArray[np.float32]:
    """Depthwise convolution kernels (channels, width) float32."""
    return generator.standard_normal((channels, width), dtype=np.float32) / np.float32(np.sqrt(width))
