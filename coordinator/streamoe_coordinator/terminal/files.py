"""Progress of work that goes through many bytes of files."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from streamoe_engine.sizes import MIB, format_size

from .style import ProgressLine

if TYPE_CHECKING:
    from streamoe_engine.checkpoint import Progress


class FilesProgress:
    """Shows how far the work is, how fast, and what is left. Use as a context manager."""

    def __init__(self, verb: str, stream: TextIO) -> None:
        self._verb, self._line = verb, ProgressLine(stream)
        self._start_s, self._start_bytes = time.monotonic(), -1

    def update(self, progress: Progress) -> None:
        """Some more bytes are done; those of the first call may be an earlier run's and do not count as speed."""
        if self._start_bytes < 0:
            self._start_bytes = progress.done_bytes
        elapsed_s = max(time.monotonic() - self._start_s, 1e-6)
        bytes_per_s = (progress.done_bytes - self._start_bytes) / elapsed_s
        left = progress.total_bytes - progress.done_bytes
        rest = f", {bytes_per_s / MIB:.0f} MiB/s, {left / bytes_per_s:.0f} s left" if bytes_per_s > 0 else ""
        done = f"{format_size(progress.done_bytes)} of {format_size(progress.total_bytes)}"
        self._line.update(f"{self._verb} {progress.part}: {done}{rest}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.clear()
