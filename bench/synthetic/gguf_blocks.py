"""Matrices of noise in GGUF's 4-bit block formats, 32 weights a block.

Owns the two encodings. Q4_0 has the bytes a weight of MLX's 4-bit groups of 64 (4.5 bits) but weights of its own;
Q4_1 (5 bits) has the very weights of the MLX folder, for its codes, scales and biases all go over exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import noise
from .shapes import GROUP

BLOCK = 32
EncodingName = Literal["q4_0", "q4_1"]


@dataclass(frozen=True, slots=True)
class Encoding:
    """One block format: its name in the `gguf` package, the bytes of a block, and how a matrix of noise is drawn.

    draw(seed, name, shape, std) gives (*shape[:-1], blocks a row, block_bytes) uint8.
    """

    gguf_name: str
    block_bytes: int
    draw: Callable[[int, str, tuple[int, ...], float], NDArray[np.uint8]]

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight takes, scales included."""
        return self.block_bytes * 8 / BLOCK


def draw_q4_0(seed: int, name: str, shape: tuple[int, ...], std: float) -> NDArray[np.uint8]:
    """Random Q4_0 blocks with standard deviation std: a float16 scale, then 16 bytes of codes."""
    count, generator = prod(shape) // BLOCK, noise.generator_for(seed, name)
    blocks = np.empty((count, 18), np.uint8)
    spread = np.float32(0.1) * generator.standard_normal(count, dtype=np.float32)
    scales = np.exp(spread) * np.float32(std / noise.CODE_STD)
    # Codes span -8..7; scales of either sign cancel their mean of -0.5.
    scales *= 1 - 2 * (noise.random_bytes(generator, count) & 1).astype(np.float32)
    blocks[:, :2] = scales.astype(np.float16).view(np.uint8).reshape(count, 2)
    blocks[:, 2:] = noise.random_bytes(generator, count * 16).reshape(count, 16)
    return blocks.reshape(*shape[:-1], shape[-1] // BLOCK, 18)


def draw_q4_1(seed: int, name: str, shape: tuple[int, ...], std: float) -> NDArray[np.uint8]:
    """The Q4_1 blocks of the MLX folder's matrix `name`: float16 scale and minimum, then 16 bytes of codes."""
    count = prod(shape) // BLOCK
    blocks = np.empty((count, 20), np.uint8)
    for at, pieces in ((0, noise.scale_pieces), (2, noise.bias_pieces)):
        values = noise.bf16_floats(np.concatenate(list(pieces(seed, name, prod(shape) // GROUP, std))))
        halves = np.repeat(values.astype(np.float16), GROUP // BLOCK)
        assert np.array_equal(halves[:: GROUP // BLOCK].astype(np.float32), values), "float16 holds these exactly"
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(count, 2)
    start = 0
    for piece in noise.code_pieces(seed, name, prod(shape) // 2):
        # MLX packs neighbours into a byte; a GGUF byte holds weights i and i + 16 of its block.
        pairs = piece.reshape(-1, 2, 8)
        first, second = pairs[:, 0], pairs[:, 1]
        codes = blocks[start : start + len(pairs), 4:]
        codes[:, 0::2] = (first & 15) | (second << 4)
        codes[:, 1::2] = (first >> 4) | (second & 0xF0)
        start += len(pairs)
    return blocks.reshape(*shape[:-1], shape[-1] // BLOCK, 20)


ENCODINGS: dict[EncodingName, Encoding] = {
    "q4_0": Encoding("Q4_0", 18, draw_q4_0),
    "q4_1": Encoding("Q4_1", 20, draw_q4_1),
}
