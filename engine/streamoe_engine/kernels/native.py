"""The C kernels as Python calls: numpy arrays and integer addresses cross, nothing is copied.

Owns the ctypes boundary and one thread pool per `Kernels`. Refuses to know what a matrix is for, or who lies at an
address: callers keep the memory alive. The interpreter's lock is free while C runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import PlatformUnsupported

Rows = npt.NDArray[np.float32]

ABI: Final = 4  # ST_ABI of streamoe_kernels.h
ISA_NAMES: Final = ("portable", "avx2", "avx512", "neon", "amx")
_SCALE_TYPES: Final = {"F32": 0, "BF16": 1, "F16": 2}
_BITS: Final = (2, 3, 4, 5, 6, 8, 16, 32)


class CMatrix(ctypes.Structure):
    """st_matrix."""

    _fields_ = (
        ("bits", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("scale_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("weight", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("biases", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class CExpert(ctypes.Structure):
    """st_expert."""

    _fields_ = (("gate", CMatrix), ("up", CMatrix), ("down", CMatrix))


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where a matrix of `rows` outputs and `cols` inputs lies, and how it is packed.

    bits 2, 3, 4, 5, 6, 8: MLX's affine packing with one scale and bias of scale_dtype ("F32", "BF16", "F16") per
    `group` (32, 64, 128) inputs. bits 16 or 32: plain numbers of scale_dtype, group 32, no scales.
    weight, scales, biases: addresses, or offsets from a record's start in an `Expert`. bias: address of one float32
    per output, 0 for none.
    """

    bits: int
    group: int
    rows: int
    cols: int
    scale_dtype: str
    weight: int
    scales: int = 0
    biases: int = 0
    bias: int = 0
    c: CMatrix = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.bits in _BITS and self.group in {32, 64, 128} and self.cols % self.group == 0
        assert self.bits < 16 or (self.group == 32 and (self.scale_dtype == "F32") == (self.bits == 32))
        scale_type = _SCALE_TYPES[self.scale_dtype]
        addresses = (self.weight, self.scales, self.biases, self.bias)
        c = CMatrix(self.bits, self.group, scale_type, 0, self.rows, self.cols, *addresses)
        object.__setattr__(self, "c", c)


@dataclass(frozen=True, slots=True)
class Expert:
    """A gated expert, down(silu(gate(x)) * up(x)): its matrices' addresses are offsets from a record's start."""

    gate: Matrix
    up: Matrix
    down: Matrix
    c: CExpert = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.gate.rows == self.up.rows == self.down.cols and self.gate.cols == self.up.cols
        assert not (self.gate.bias or self.up.bias or self.down.bias), "experts with output biases are not for C"
        object.__setattr__(self, "c", CExpert(self.gate.c, self.up.c, self.down.c))


@dataclass(frozen=True, slots=True)
class Group:
    """Rows [first_row, first_row + num_rows) that go through the expert at address `record`."""

    record: int
    first_row: int
    num_rows: int


class Kernels:
    """The kernels with a pool of `threads` threads, the caller's included; calls come from one thread at a time.

    isa: one of ISA_NAMES, or None for the best that this processor has. Raises PlatformUnsupported when the
    processor lacks it, or the system refuses a thread. The bits of a result depend on the instruction set, and on
    nothing else: not on threads, on rows multiplied together, or on how experts are split over calls.
    """

    def __init__(self, library: Path, threads: int, isa: str | None = None) -> None:
        assert threads >= 1 and (isa is None or isa in ISA_NAMES)
        self.lib = _declared(ctypes.CDLL(str(library)))
        code = self.lib.st_isa_best() if isa is None else ISA_NAMES.index(isa)
        if not self.lib.st_isa_available(code):
            raise PlatformUnsupported(f"this processor has no {ISA_NAMES[code]}", "unset STREAMOE_ISA")
        self._pool: int | None = self.lib.st_pool_new_for(threads, code)
        if self._pool is None:
            raise PlatformUnsupported(f"the system refused {threads} threads", "give fewer threads")
        self.isa, self.threads = ISA_NAMES[code], threads

    def close(self) -> None:
        """Ends the threads; further calls are a mistake."""
        if self._pool is not None:
            self.lib.st_pool_free(self._pool)
            self._pool = None

    def matmul(self, matrix: Matrix, x: Rows, out: Rows) -> None:
        """out (m, rows) = x (m, cols) times the matrix."""
        assert x.shape[1] == matrix.cols and out.shape == (x.shape[0], matrix.rows)
        args = (x.shape[0], matrix.cols, address_of(out), matrix.rows)
        self.lib.st_matmul(self.pool, matrix.c, address_of(x), *args)

    def expert_token(self, expert: Expert, records: Sequence[int], x: Rows, hidden: Rows, out: Rows) -> None:
        """out (k, width) = row x (1, width) through the experts at k addresses, in their order.

        hidden: scratch, at least (k, gate.rows). Any split of `records` over calls gives the same bits.
        """
        count = len(records)
        assert x.shape == (1, expert.gate.cols) and out.shape == (count, expert.down.rows)
        assert hidden.size >= count * expert.gate.rows
        c_records = (ctypes.c_uint64 * count)(*records)
        args = (address_of(x), address_of(hidden), address_of(out), expert.down.rows)
        self.lib.st_expert_token(self.pool, ctypes.addressof(expert.c), c_records, None, count, *args)

    def expert_rows(self, expert: Expert, groups: Sequence[Group], x: Rows, hidden: Rows, out: Rows) -> None:
        """out (R, width): the rows that the groups name, each row of x (R, width) through its group's expert.

        hidden: scratch, at least (R, gate.rows). The bits of a row are those of expert_token.
        """
        assert x.shape[1] == expert.gate.cols and out.shape == (x.shape[0], expert.down.rows)
        assert hidden.size >= x.shape[0] * expert.gate.rows
        assert all(g.first_row >= 0 and g.first_row + g.num_rows <= x.shape[0] for g in groups)
        c_groups = np.array([(g.record, g.first_row, g.num_rows) for g in groups], np.int64)  # st_group's layout
        args = (address_of(x), expert.gate.cols, address_of(hidden), address_of(out), expert.down.rows)
        self.lib.st_expert_rows(self.pool, expert.c, c_groups.ctypes.data, len(groups), *args)

    @property
    def pool(self) -> int:
        """Address of the st_pool, for other calls of the library."""
        assert self._pool is not None, "these kernels are closed"
        return self._pool


def address_of(array: Rows) -> int:
    """Where a C-contiguous float32 array lies."""
    assert array.dtype == np.float32 and array.flags.c_contiguous
    address: int = array.__array_interface__["data"][0]
    return address


def raw_address(array: np.ndarray) -> int:
    """Where an array of any type lies."""
    address: int = array.__array_interface__["data"][0]
    return address


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, integer, i64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    matrix, expert = ctypes.POINTER(CMatrix), ctypes.POINTER(CExpert)
    lib.st_pool_new_for.argtypes, lib.st_pool_new_for.restype = (integer, integer), pointer
    lib.st_pool_free.argtypes, lib.st_pool_free.restype = (pointer,), None
    lib.st_matmul.argtypes, lib.st_matmul.restype = (pointer, matrix, pointer, i64, i64, pointer, i64), None
    lib.st_expert_token.argtypes = (pointer, pointer, pointer, pointer, i64, *[pointer] * 3, i64)
    lib.st_expert_token.restype = None
    lib.st_expert_rows.argtypes = (pointer, expert, pointer, i64, pointer, i64, pointer, pointer, i64)
    lib.st_expert_rows.restype = None
    return lib
