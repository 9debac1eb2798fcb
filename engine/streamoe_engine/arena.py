"""Resident weights in one buffer of huge pages, for code that computes at addresses.

Owns the buffer. C linears run 27 ms a token from huge pages and 33 from ordinary ones (docs/lab-log.md).
Refuses to know what the tensors are for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .huge_pages import huge_buffer
from .manifest import Field
from .sizes import round_up
from .store import ModelStore

_TENSOR_ALIGNMENT = 64  # one cache line, and one AVX-512 load


class ResidentArena:
    """Tensors of a band's resident parts, as they are stored. parts: by part, those that lie here."""

    def __init__(self, parts: Mapping[str, Sequence[Field]]) -> None:
        """Room for them; `load` fills it."""
        self.fields: dict[str, Field] = {field.name: field for fields in parts.values() for field in fields}
        self._parts = parts
        self._offsets: dict[str, int] = {}
        self._kept: list[np.ndarray] = []
        position = 0
        for field in self.fields.values():
            self._offsets[field.name] = position
            position += round_up(field.num_bytes, _TENSOR_ALIGNMENT)
        self._bytes = np.frombuffer(huge_buffer(max(position, 1)), dtype=np.uint8)

    def load(self, store: ModelStore) -> None:
        """Fill it, checking every part. Raises the store's errors."""
        for part in self._parts:
            store.load_resident(part, self.targets(part))

    def targets(self, part: str) -> dict[str, np.ndarray]:
        """Where the tensors of a part are to be written: uint8, by name."""
        return {field.name: self._raw(field) for field in self._parts[part]}

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
        raw = self._raw(field)
        if field.dtype == "BF16":
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view({"F32": np.float32, "F16": np.float16}[field.dtype]).astype(np.float32)
        return np.ascontiguousarray(values.reshape(field.shape))

    def _raw(self, field: Field) -> np.ndarray:
        start = self._offsets[field.name]
        return self._bytes[start : start + field.num_bytes]
