"""The inputs a band has been given, step by step, to give them to another again.

Owns the arrays: in memory up to a planned room that all bands and sessions share, beyond it in a temporary file that
has no name. Refuses to know why a step is run again.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from streamoe_engine.sizes import MIB
from streamoe_proto.messages import EMPTY_PREFIX

DEFAULT_HISTORY_BYTES = 64 * MIB


class HistoryRoom:
    """Bytes of memory for all histories of a chain. Any thread."""

    def __init__(self, total_bytes: int = DEFAULT_HISTORY_BYTES) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """Bytes taken now."""
        return self._used_bytes

    def take(self, num_bytes: int) -> bool:
        """Take so many bytes, if they are there."""
        with self._lock:
            if self._used_bytes + num_bytes > self.total_bytes:
                return False
            self._used_bytes += num_bytes
            return True

    def give_back(self, num_bytes: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._used_bytes -= num_bytes


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step that a band has done: tokens position..end, and the hashes of the tokens before and with it."""

    position: int
    end: int
    prefix_hash: bytes
    next_hash: bytes
    inputs: np.ndarray


@dataclass(frozen=True, slots=True)
class _Kept:
    position: int
    end: int
    next_hash: bytes
    inputs: np.ndarray | None  # None: in the file
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


class BandHistory:
    """One session's steps through one band, from `base` on. One thread; close() from any."""

    def __init__(self, room: HistoryRoom, base: int = 0, base_hash: bytes = EMPTY_PREFIX) -> None:
        self._room = room
        self._steps: list[_Kept] = []
        self._marks: dict[int, tuple[int, bytes]] = {base: (0, base_hash)}  # position -> (steps before it, hash)
        self._file: BinaryIO | None = None
        self._taken_bytes = 0
        self.base, self.position, self.prefix_hash = base, base, base_hash

    @property
    def spilled_bytes(self) -> int:
        """Bytes in the file."""
        return sum(_num_bytes(step) for step in self._steps if step.inputs is None)

    def append(self, inputs: np.ndarray, next_hash: bytes) -> None:
        """Keep the inputs of the next step. Raises OSError when the file cannot take them; then nothing is kept."""
        held: np.ndarray | None = inputs
        offset = 0
        if self._room.take(inputs.nbytes):
            self._taken_bytes += inputs.nbytes
        else:
            held, offset = None, self._spill(inputs)
        end = self.position + len(inputs)
        self._steps.append(_Kept(self.position, end, next_hash, held, offset, inputs.shape, inputs.dtype))
        self._marks[end] = len(self._steps), next_hash
        self.position, self.prefix_hash = end, next_hash

    def is_mark(self, position: int, prefix_hash: bytes | None = None) -> bool:
        """Whether a step began or ended here; with these very tokens before it, where a hash is given."""
        mark = self._marks.get(position)
        return mark is not None and prefix_hash in (None, mark[1])

    def since(self, position: int) -> Iterator[PastStep]:
        """The steps from a mark on, oldest first, as they were run. Raises OSError when the file cannot be read."""
        first, before = self._marks[position]
        for step in self._steps[first:]:
            inputs = self._read(step) if step.inputs is None else step.inputs
            yield PastStep(step.position, step.end, before, step.next_hash, inputs)
            before = step.next_hash

    def close(self) -> None:
        """Give memory and file back."""
        file, self._file = self._file, None
        self._room.give_back(self._taken_bytes)
        self._taken_bytes, self._steps, self._marks = 0, [], {}
        if file is not None:
            file.close()

    def _spill(self, inputs: np.ndarray) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="streamoe-history-")  # noqa: SIM115  close() closes it
        offset = self._file.seek(0, 2)
        try:
            self._file.write(inputs.data if inputs.flags.c_contiguous else inputs.tobytes())
            self._file.flush()
        except OSError:
            self._file.truncate(offset)
            raise
        return offset

    def _read(self, step: _Kept) -> np.ndarray:
        assert self._file is not None
        self._file.seek(step.offset)
        data = self._file.read(_num_bytes(step))
        if len(data) != _num_bytes(step):
            raise OSError(f"the history file ends after {len(data)} of {_num_bytes(step)} B")
        return np.frombuffer(data, step.dtype).reshape(step.shape)


def _num_bytes(step: _Kept) -> int:
    return int(np.prod(step.shape)) * step.dtype.itemsize
