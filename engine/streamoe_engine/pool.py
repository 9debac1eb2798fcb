"""The slots: one page-aligned buffer that MLX owns, read into by the reader, multiplied in place.

Owns the buffer and the views on it. Refuses to know which expert lies in which slot, and which deserves one.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx
import numpy as np

from .huge_pages import zeros_in_huge_pages
from .manifest import DTYPE_BYTES, PAGE_BYTES, Field
from .plan_types import POOL_ALIGNMENT_BYTES

_DTYPES = {"U8": mx.uint8, "U32": mx.uint32, "BF16": mx.bfloat16, "F16": mx.float16, "F32": mx.float32}


class SlotPool:
    """num_slots slots of slot_bytes (a multiple of PAGE_BYTES) each, all touched at once when built."""

    def __init__(self, num_slots: int, slot_bytes: int) -> None:
        assert num_slots > 0 and slot_bytes % PAGE_BYTES == 0, (num_slots, slot_bytes)
        self.num_slots, self.slot_bytes = num_slots, slot_bytes
        # Rows of one page keep every dimension within MLX's 32-bit shapes, whatever the pool's size.
        pages = (num_slots * slot_bytes + POOL_ALIGNMENT_BYTES) // PAGE_BYTES
        self._raw = mx.zeros((pages, PAGE_BYTES // 4), dtype=mx.uint32)
        mx.eval(self._raw)
        host = np.array(self._raw, copy=False).reshape(-1).view(np.uint8)
        self._start = -host.ctypes.data % POOL_ALIGNMENT_BYTES
        self._bytes = host.data[self._start : self._start + num_slots * slot_bytes]
        self._address = int(host.ctypes.data) + self._start
        self.has_huge_pages = zeros_in_huge_pages(self._address, num_slots * slot_bytes)
        self._typed: dict[str, mx.array] = {}

    def slot_bytes_view(self, slot: int) -> memoryview:
        """The writable bytes of one slot, page-aligned."""
        return self._bytes[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def slot_address(self, slot: int) -> int:
        """Where a slot lies, for code that computes at addresses."""
        return self._address + slot * self.slot_bytes

    def all_slots(self, field: Field) -> mx.array:
        """One tensor of every slot, (num_slots, *field.shape), sharing the buffer: made for gather_qmm.

        MLX wants only the last two dimensions contiguous, so nothing is copied (docs/lab-log.md).
        """
        base, item = self._base(field.dtype), DTYPE_BYTES[field.dtype]
        shape = (self.num_slots, *field.shape)
        strides = (self.slot_bytes // item, *_row_strides(field.shape))
        return mx.as_strided(base, shape, strides, (self._start + field.offset) // item)

    def one_slot(self, slot: int, field: Field) -> mx.array:
        """One tensor of one slot, field.shape, sharing the buffer."""
        base, item = self._base(field.dtype), DTYPE_BYTES[field.dtype]
        offset = (self._start + slot * self.slot_bytes + field.offset) // item
        return mx.as_strided(base, field.shape, _row_strides(field.shape), offset)

    def _base(self, dtype: str) -> mx.array:
        if dtype not in self._typed:
            self._typed[dtype] = self._raw.view(_DTYPES[dtype])
            mx.eval(self._typed[dtype])
        return self._typed[dtype]


def _row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
