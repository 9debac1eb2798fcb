"""Bytes of one new file after another, hashed and written while the next ones are made.

Owns a ring of buffers and two threads, one that hashes and one that writes; a buffer is used again once both are
done with it, so memory is bounded and reading, hashing and writing overlap.
Refuses to know what the bytes mean.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..huge_pages import huge_buffer
from ..sizes import MIB
from ..uncached_write import UncachedWriter, aligned_part, padded
from .segments import Bytes

BUFFER_BYTES = 16 * MIB
NUM_BUFFERS = 3


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file: its name in the folder, size in bytes and SHA-256 (hex)."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(slots=True)
class _OpenFile:
    name: str
    writer: UncachedWriter
    digest: Any
    num_bytes: int = 0  # handed over so far
    jobs: list[Future[Any]] = field(default_factory=list)


class Sink:
    """Files in `folder`, one open at a time: open(), reserve() or write(), close().

    on_bytes(count, name) is told of bytes handed over, on_file(written) of each file that is safely on the disk,
    both from the calling thread.
    """

    def __init__(
        self, folder: Path, on_bytes: Callable[[int, str], None], on_file: Callable[[WrittenFile], None]
    ) -> None:
        self._folder, self._on_bytes, self._on_file = folder, on_bytes, on_file
        self._buffers = [np.frombuffer(huge_buffer(BUFFER_BYTES), dtype=np.uint8) for _ in range(NUM_BUFFERS)]
        self._busy: deque[tuple[int, list[Future[Any]]]] = deque()
        self._free = list(range(NUM_BUFFERS))
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="streamoe-hash")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="streamoe-write")
        self._finishing: deque[tuple[_OpenFile, Future[str], Future[None]]] = deque()
        self._file: _OpenFile | None = None
        self._current, self._used = self._free.pop(), 0

    def open(self, name: str, expected_bytes: int) -> None:
        """Begin a file. Raises ConversionFailed."""
        assert self._file is None and self._used == 0, name
        self._file = _OpenFile(name, UncachedWriter(self._folder / name, expected_bytes), hashlib.sha256())

    @property
    def room(self) -> int:
        """Bytes that reserve() gives without handing the buffer over first."""
        return BUFFER_BYTES - self._used

    def reserve(self, num_bytes: int) -> Bytes:
        """The next num_bytes of the file, to be filled before the next call. Raises ConversionFailed.

        num_bytes is at most BUFFER_BYTES less one block of the disk.
        """
        if num_bytes > self.room:
            self._hand_over()
        assert num_bytes <= self.room, num_bytes
        self._used += num_bytes
        return self._buffers[self._current][self._used - num_bytes : self._used]

    def make_room(self) -> None:
        """Hand over what there is, so that room is nearly a whole buffer."""
        self._hand_over()

    def write(self, data: Bytes) -> None:
        """Append a copy of `data`, of any length. Raises ConversionFailed."""
        done = 0
        while done < len(data):
            if not self.room:
                self._hand_over()
            count = min(self.room, len(data) - done)
            self.reserve(count)[:] = data[done : done + count]
            done += count

    def close(self) -> None:
        """End the open file; on_file is called once the disk has it. Raises ConversionFailed."""
        file = self._file
        assert file is not None
        if self._used:
            self._send(self._used, padded(self._used))
        self._used = 0
        digest = self._hasher.submit(file.digest.hexdigest)
        self._finishing.append((file, digest, self._writer.submit(file.writer.finish, file.num_bytes)))
        self._file = None
        self._take_finished(wait=False)

    def finish(self) -> None:
        """Wait for every file. Raises ConversionFailed."""
        self._take_finished(wait=True)

    def _hand_over(self) -> None:
        whole = aligned_part(self._used)
        rest = self._buffers[self._current][whole : self._used]
        self._send(whole, whole)
        self._buffers[self._current][: len(rest)] = rest
        self._used = len(rest)

    def _send(self, hashed_bytes: int, written_bytes: int) -> None:
        """Give the current buffer to both threads and take the next; the old one keeps its bytes until reused."""
        file = self._file
        assert file is not None
        buffer = self._buffers[self._current]
        jobs = [
            self._hasher.submit(file.digest.update, buffer[:hashed_bytes]),
            self._writer.submit(file.writer.write, buffer[:written_bytes].data, file.num_bytes),
        ]
        file.num_bytes += hashed_bytes
        file.jobs += jobs
        self._busy.append((self._current, jobs))
        self._current = self._next_buffer()
        self._on_bytes(hashed_bytes, file.name)

    def _next_buffer(self) -> int:
        if self._free:
            return self._free.pop()
        number, jobs = self._busy.popleft()
        for job in jobs:
            job.result()
        return number

    def _take_finished(self, *, wait: bool) -> None:
        while self._finishing:
            file, digest, finished = self._finishing[0]
            if not (wait or (digest.done() and finished.done())):
                return
            for job in (*file.jobs, finished):
                job.result()
            self._on_file(WrittenFile(file.name, file.num_bytes, digest.result()))
            self._finishing.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in (self._hasher, self._writer):
            pool.shutdown(wait=True, cancel_futures=True)
        for file, _, _ in self._finishing:
            file.writer.abandon()
        if self._file is not None:
            self._file.writer.abandon()
