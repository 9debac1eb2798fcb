"""Safetensors dtype names against MLX's, and bytes against arrays.

MLX has no numpy view of bfloat16, so bytes are the meeting point.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from .segments import Bytes

MLX_DTYPES = {
    "BOOL": mx.bool_,
    "U8": mx.uint8,
    "I8": mx.int8,
    "U16": mx.uint16,
    "I16": mx.int16,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U32": mx.uint32,
    "I32": mx.int32,
    "F32": mx.float32,
    "U64": mx.uint64,
    "I64": mx.int64,
}
SAFETENSORS_DTYPES = {dtype: name for name, dtype in MLX_DTYPES.items()}
ITEM_BYTES = {name: dtype.size for name, dtype in MLX_DTYPES.items()}
FLOATS = ("F32", "F16", "BF16")


def array_from_bytes(data: Bytes, dtype: str) -> mx.array:
    """A copy of the bytes as a flat array of a safetensors dtype."""
    return mx.array(data).view(MLX_DTYPES[dtype])


def bytes_of_array(array: mx.array) -> Bytes:
    """The bytes of an array in row-major order, sharing its memory."""
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return np.array(flat, copy=False)
