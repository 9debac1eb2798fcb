"""Memory that was freed, given back to the system.

Owns two calls: MLX keeps freed arrays in a cache, and the C library keeps freed small blocks in its heap. After a
checkpoint of 70,000 tensors was outlined, these are 28 and 40 MB. Refuses to know whose memory it was.
"""

from __future__ import annotations

import ctypes
import sys

import mlx.core as mx


def give_freed_memory_back() -> None:
    """Takes about a millisecond; changes nothing that is in use."""
    mx.clear_cache()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
        if trim is not None:
            trim(0)
