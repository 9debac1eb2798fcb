"""Huge pages under memory that others allocated.

Owns two madvise calls of Linux. A direct read of one record reaches 3.1 to 3.3 GB/s into huge pages and
1.2 to 1.5 GB/s into ordinary ones, since a request is split at 254 scattered pieces (docs/lab-log.md).
Refuses to know what the memory is for. Where the kernel has no huge pages to give, memory stays as it was.
"""

from __future__ import annotations

import ctypes
import sys

HUGE_PAGE_BYTES = 2 * 1024 * 1024
_MADV_HUGEPAGE = 14
_MADV_COLLAPSE = 25  # Linux 6.1: gather pages that are already there, within the same memory charge


def use_huge_pages(address: int, num_bytes: int) -> bool:
    """Back the whole huge pages inside [address, address + num_bytes) by huge pages. True when the kernel agreed."""
    if sys.platform != "linux":
        return False
    start = -(-address // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    length = (address + num_bytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - start
    if length <= 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.madvise(start, length, _MADV_HUGEPAGE)
    return bool(libc.madvise(start, length, _MADV_COLLAPSE) == 0)
