"""The output head through the C kernels: from memory, or block by block as its rows are read.

Owns the order of blocks in the logits. A row's bits do not depend on the rows beside it, so both give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from ..head_stream import HeadBlock, HeadStream
from ..kernels import Kernels, Matrix
from .stored_matrix import stored_matrix

# (tokens, width) float32 states after the final norm give (tokens, vocabulary) float32 logits.
KernelHead = Callable[[np.ndarray], np.ndarray]


def resident_head(kernels: Kernels, matrix: Matrix) -> KernelHead:
    """A head whose matrix lies in memory."""

    def logits(hidden: np.ndarray) -> np.ndarray:
        out = np.empty((len(hidden), matrix.rows), np.float32)
        kernels.matmul(matrix, hidden, out)
        return out

    return logits


def streamed_head(kernels: Kernels, stream: HeadStream, bias: np.ndarray | None = None) -> KernelHead:
    """A head that is read for every call, which then may raise ReadFailed. bias: (vocabulary,) float32."""

    def logits(hidden: np.ndarray) -> np.ndarray:
        out = np.empty((len(hidden), stream.num_rows), np.float32)
        with closing(stream.blocks()) as blocks:
            for block in blocks:
                rows = slice(block.first_row, block.first_row + block.num_rows)
                part = np.empty((len(hidden), block.num_rows), np.float32)
                kernels.matmul(_matrix(stream, block, hidden.shape[1]), hidden, part)
                out[:, rows] = part
        return out if bias is None else np.add(out, bias, out=out)

    return logits


def _matrix(stream: HeadStream, block: HeadBlock, width: int) -> Matrix:
    address = stream.pool.slot_address(block.slot)
    return stored_matrix(block.fields, lambda name: address + block.fields[name].offset, width)
