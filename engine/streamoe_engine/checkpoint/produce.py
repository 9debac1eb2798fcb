"""Segments made into bytes: copied by the gatherer, or quantised and derived by MLX, block by block.

Owns the scales and biases between a matrix's codes and the place where they are due. All MLX calls stay in the
calling thread. Refuses to know which file of the folder the bytes are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import mlx.core as mx
import numpy as np

from ..sizes import MIB
from .dtypes import ITEM_BYTES, array_from_bytes, bytes_of_array
from .gather import Copyable, Gatherer
from .segments import Bytes, Derived, Extent, Matrix, QuantizedPart, QuantizedRows, Segment
from .sink import Sink
from .source_files import SourceReader

# MLX quantises a block in place of a whole matrix: a bf16 embedding of 1 GB would not fit otherwise.
BLOCK_BYTES = 8 * MIB


class Producer:
    """Writes segments into the sink's open file."""

    def __init__(self, reader: SourceReader, sink: Sink) -> None:
        self._reader, self._sink = reader, sink
        self._gatherer = Gatherer(reader, sink)
        self._kept: dict[tuple[str, int], list[Bytes]] = {}

    def write(self, segments: Iterable[Segment]) -> None:
        """Append all segments. Raises CheckpointIncomplete and ConversionFailed."""
        for is_copy, run in groupby(segments, key=lambda segment: isinstance(segment, Copyable)):
            if is_copy:
                self._gatherer.copy(segment for segment in run if isinstance(segment, Copyable))
            else:
                for segment in run:
                    self._compute(segment)
        assert not self._kept, list(self._kept)

    def _compute(self, segment: Segment) -> None:
        match segment:
            case QuantizedPart(_, part, key) if key is not None and part > 0:
                for data in self._kept.pop((key, part)):
                    self._sink.write(data)
            case QuantizedPart(matrix, part, key):
                self._quantize(matrix, part, key)
            case QuantizedRows(matrix):
                for parts in self._quantized(matrix):
                    num_rows = len(parts[0]) // (matrix.width * matrix.spec.bits // 8)
                    rows = np.concatenate([part.reshape(num_rows, -1) for part in parts], axis=1)
                    self._sink.write(rows.reshape(-1))
            case Derived(compute):
                self._sink.write(bytes_of_array(compute()))
            case _:
                raise AssertionError(segment)

    def _quantize(self, matrix: Matrix, part: int, key: str | None) -> None:
        kept: dict[int, list[Bytes]] = {1: [], 2: []}
        for parts in self._quantized(matrix):
            self._sink.write(parts[part])
            if key is not None:
                for number, blocks in kept.items():
                    blocks.append(parts[number])
        if key is not None:
            self._kept |= {(key, number): blocks for number, blocks in kept.items()}

    def _quantized(self, matrix: Matrix) -> Iterator[tuple[Bytes, Bytes, Bytes]]:
        """Codes, scales and biases of consecutive blocks of rows, each (rows * bytes of a row,) uint8."""
        spec = matrix.spec
        for block in self._blocks(matrix):
            codes, scales, biases = mx.quantize(block, group_size=spec.group_size, bits=spec.bits, mode=spec.mode)
            mx.eval(codes, scales, biases)
            yield bytes_of_array(codes), bytes_of_array(scales), bytes_of_array(biases)

    def _blocks(self, matrix: Matrix) -> Iterator[mx.array]:
        """The matrix in blocks of rows, each (rows, width)."""
        row_bytes = matrix.width * ITEM_BYTES[matrix.dtype]
        step = max(1, BLOCK_BYTES // row_bytes)
        origin = matrix.origin
        whole = origin.compute().reshape(matrix.num_rows, matrix.width) if isinstance(origin, Derived) else None
        for first in range(0, matrix.num_rows, step):
            count = min(step, matrix.num_rows - first)
            if whole is not None:
                yield whole[first : first + count]
            else:
                assert isinstance(origin, Extent) and origin.is_contiguous, origin
                start = origin.offset + first * row_bytes
                data = self._reader.span(origin.file, start, start + count * row_bytes)
                yield array_from_bytes(data, matrix.dtype).reshape(count, matrix.width)
