"""What a file of the model folder is made of, in order: ranges of source files, constants, things to be computed.

Owns the nouns only. Refuses to know how they are read, computed and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..manifest import Quantization

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Extent:
    """num_rows rows of row_bytes in a source file, row_step bytes apart, the first at `offset`."""

    file: int
    offset: int
    row_bytes: int
    num_rows: int = 1
    row_step: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes without what lies between the rows."""
        return self.row_bytes * self.num_rows

    @property
    def is_contiguous(self) -> bool:
        """Whether nothing lies between the rows."""
        return self.num_rows == 1 or self.row_step == self.row_bytes

    def rows(self, first: int, count: int) -> Extent:
        """The rows [first, first + count)."""
        return replace(self, offset=self.offset + first * self.row_step, num_rows=count)

    def shifted(self, num_bytes: int) -> Extent:
        """The same shape, num_bytes further on."""
        return replace(self, offset=self.offset + num_bytes)


@dataclass(frozen=True, slots=True)
class Derived:
    """A tensor that the model class computes from source tensors; compute() gives it evaluated."""

    compute: Callable[[], mx.array]
    num_bytes: int


Origin = Extent | Derived


@dataclass(frozen=True, slots=True)
class Padding:
    """num_bytes zeros."""

    num_bytes: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows side by side: row r of every part, then row r + 1. All parts have the same number of rows."""

    parts: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A floating-point matrix to be quantised: rows of `width` elements of a safetensors dtype."""

    origin: Origin
    dtype: str
    num_rows: int
    width: int
    spec: Quantization


@dataclass(frozen=True, slots=True)
class QuantizedPart:
    """Codes (part 0), scales (1) or biases (2) of a matrix. Where there is a key, part 0 comes first and the others
    are kept in memory until they are due; without one, each part is computed for itself."""

    matrix: Matrix
    part: int
    key: str | None


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Row records of a quantised matrix: codes, scales and biases of row r, then of row r + 1."""

    matrix: Matrix


Segment = bytes | Extent | Padding | Columns | Derived | QuantizedPart | QuantizedRows


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file to be written: its name in the folder, its size in bytes, and what it is made of (asked for once)."""

    name: str
    num_bytes: int
    segments: Callable[[], Iterable[Segment]]
