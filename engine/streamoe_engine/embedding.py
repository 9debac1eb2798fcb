"""Token embeddings that stay on disk: each token's row is read when it is needed.

Owns the row file's reading. A row is about 1 KiB; keeping the table would cost 0.27 GiB of the cap for
Qwen3.6-35B-A3B. Refuses to know what is done with a row.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .manifest import DTYPE_BYTES, Embedding, Field
from .sizes import round_up
from .uncached import ALIGNMENT, UncachedFile, aligned_buffer


class StreamedEmbedding(nn.Module):
    """Takes the place of nn.Embedding: (…) ids give (…, width) rows in dtype."""

    def __init__(self, entry: Embedding, file: UncachedFile, dtype: mx.Dtype) -> None:
        super().__init__()
        self._entry, self._file, self._dtype = entry, file, dtype
        self._window = aligned_buffer(round_up(entry.record.stride_bytes, ALIGNMENT) + ALIGNMENT)

    def __call__(self, ids: mx.array) -> mx.array:
        """ids are within the vocabulary. Raises ReadFailed."""
        wanted, back = np.unique(np.array(ids).reshape(-1), return_inverse=True)
        rows = self._dequantized(np.stack([self._row(int(row)) for row in wanted]))
        return rows[mx.array(back)].reshape(*ids.shape, -1)

    def _row(self, row: int) -> np.ndarray:
        stride = self._entry.record.stride_bytes
        start = row * stride
        base = start - start % ALIGNMENT
        window = self._window[: round_up(start + stride - base, ALIGNMENT)]
        self._file.read_into(window, base)
        return np.frombuffer(window[start - base : start - base + stride], dtype=np.uint8).copy()

    def _dequantized(self, records: np.ndarray) -> mx.array:
        tensors = {field.name: _column(records, field) for field in self._entry.record.fields}
        spec = self._entry.quantization
        if spec is None:
            return tensors["weight"].astype(self._dtype)
        scales, biases = tensors["scales"], tensors.get("biases")
        if scales.dtype != mx.uint8:
            scales, biases = scales.astype(self._dtype), None if biases is None else biases.astype(self._dtype)
        rows = mx.dequantize(
            tensors["weight"], scales, biases, group_size=spec.group_size, bits=spec.bits, mode=spec.mode
        )
        return rows.astype(self._dtype)


def _column(records: np.ndarray, field: Field) -> mx.array:
    """One field of row records (rows, stride) uint8, as (rows, *field.shape)."""
    data = np.ascontiguousarray(records[:, field.offset : field.offset + field.num_bytes])
    names = {"U32": np.uint32, "BF16": np.uint16, "F16": np.float16, "F32": np.float32, "U8": np.uint8}
    assert field.num_bytes % DTYPE_BYTES[field.dtype] == 0, field
    array = mx.array(data.view(names[field.dtype]).reshape(len(records), *field.shape))
    return array.view(mx.bfloat16) if field.dtype == "BF16" else array
