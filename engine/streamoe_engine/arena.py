"""Resident weights in one buffer of huge pages, for code that computes at addresses.

Owns the buffer. C linears run 27 ms a token from huge pages and 33 from ordinary ones (docs/lab-log.md).
Refuses to know what the tensors are for.
"""

from __future__ import annotations

import numpy as np

from .huge_pages import huge_buffer
from .manifest import Field
from .sizes import round_up
from .store import ModelStore

_TENSOR_ALIGNMENT = 64  # one cache line, and one AVX-512 load


class ResidentArena:
    """The resident parts of a band, as they are stored."""

    def __init__(self, store: ModelStore, parts: list[str]) -> None:
        """Loads and checks every part. Raises the store's errors."""
        self.fields: dict[str, Field] = {field.name: field for part in parts for field in store.manifest.resident[part]}
        total = sum(round_up(field.num_bytes, _TENSOR_ALIGNMENT) for field in self.fields.values())
        self._bytes = np.frombuffer(huge_buffer(max(total, 1)), dtype=np.uint8)
        self._offsets: dict[str, int] = {}
        self._kept: list[np.ndarray] = []
        position = 0
        for part in parts:
            spans = {}
            for field in store.manifest.resident[part]:
                self._offsets[field.name] = position
                spans[field.name] = self._bytes[position : position + field.num_bytes]
                position += round_up(field.num_bytes, _TENSOR_ALIGNMENT)
            store.load_resident(part, spans)

    def address(self, name: str) -> int:
        """Where the tensor lies."""
        base: int = self._bytes.__array_interface__["data"][0]
        return base + self._offsets[name]

    def keep(self, array: np.ndarray) -> None:
        """Keep a small array alive as long as the arena, for code that holds its address."""
        self._kept.append(array)

    def vector(self, name: str) -> np.ndarray:
        """The tensor as float32, in its stored shape: a copy, for what is small."""
        field = self.fields[name]
        raw = self._bytes[self._offsets[name] : self._offsets[name] + field.num_bytes]
        if field.dtype == "BF16":
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view({"F32": np.float32, "F16": np.float16}[field.dtype]).astype(np.float32)
        return np.ascontiguousarray(values.reshape(field.shape))
