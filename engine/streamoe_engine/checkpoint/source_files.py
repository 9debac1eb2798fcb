"""The source checkpoint's files, open for reading past the page cache.

Owns the descriptors, at most MAX_OPEN at a time, and one read buffer for the whole blocks around unaligned ranges.
Refuses to know what the bytes mean. Every failure becomes CheckpointIncomplete here.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from ..errors import CheckpointIncomplete, ModelFileMissing, ReadFailed
from ..huge_pages import huge_buffer
from ..sizes import MIB, round_up
from ..uncached import ALIGNMENT, UncachedFile, aligned_buffer
from .segments import Bytes

MAX_OPEN = 32  # checkpoints come in up to 190 shards; macOS allows 256 open files by default
READ_BYTES = 16 * MIB
MAX_SPAN = READ_BYTES - 2 * ALIGNMENT  # leaves room for the blocks around an unaligned range


class SourceFiles:
    """Numbered files. close() ends it."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self._open: OrderedDict[int, UncachedFile] = OrderedDict()

    def num_bytes(self, file: int) -> int:
        """Size of a file. Raises CheckpointIncomplete."""
        return self._file(file).num_bytes

    def read_into(self, file: int, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` (address, length and offset are multiples of ALIGNMENT); past the end of the
        file the view is left as it was. Raises CheckpointIncomplete."""
        try:
            self._file(file).read_into(view, offset)
        except ReadFailed as error:
            raise CheckpointIncomplete(error.message, "check the disk, or download that file again") from error

    def read(self, file: int, offset: int, num_bytes: int) -> bytes:
        """A short range as bytes; meant for headers. Raises CheckpointIncomplete."""
        if num_bytes == 0:
            return b""
        base = offset - offset % ALIGNMENT
        buffer = aligned_buffer(round_up(offset + num_bytes - base, ALIGNMENT))
        self.read_into(file, buffer, base)
        return bytes(buffer[offset - base : offset - base + num_bytes])

    def close(self) -> None:
        """Close every descriptor."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, file: int) -> UncachedFile:
        found = self._open.pop(file, None)
        if found is None:
            if len(self._open) >= MAX_OPEN:
                self._open.popitem(last=False)[1].close()
            try:
                found = UncachedFile(self.paths[file])
            except (ModelFileMissing, ReadFailed) as error:
                raise CheckpointIncomplete(error.message, "download that file again") from error
        self._open[file] = found
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SourceReader:
    """Ranges of SourceFiles through one buffer of READ_BYTES."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._buffer = huge_buffer(READ_BYTES)
        self._bytes: Bytes = np.frombuffer(self._buffer, dtype=np.uint8)

    def span(self, file: int, start: int, end: int) -> Bytes:
        """The bytes [start, end) of a file, at most MAX_SPAN of them; valid until the next read.

        Raises CheckpointIncomplete.
        """
        assert 0 < end - start <= MAX_SPAN, (file, start, end)
        skip = start % ALIGNMENT
        self._files.read_into(file, self._buffer[: round_up(skip + end - start, ALIGNMENT)], start - skip)
        return self._bytes[skip : skip + end - start]

    def fill(self, target: Bytes, file: int, offset: int) -> None:
        """The bytes of a file from `offset` on, as many as `target` takes. Raises CheckpointIncomplete."""
        for done in range(0, len(target), MAX_SPAN):
            end = min(done + MAX_SPAN, len(target))
            target[done:end] = self.span(file, offset + done, offset + end)
