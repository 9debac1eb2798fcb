"""Files read and written past the page cache.

Owns the platform's ways to do so: O_DIRECT on Linux, F_NOCACHE on macOS, and where a file system refuses both,
ordinary reads whose pages are given back at once. Refuses to know what the bytes mean.

Direct transfers need offset, length and address to be multiples of ALIGNMENT.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from .errors import ModelFileMissing, ReadFailed
from .sizes import round_up

ALIGNMENT = 4096
_F_NOCACHE = 48  # <sys/fcntl.h> on macOS; Python's fcntl module has the name only there
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)


def aligned_buffer(num_bytes: int) -> memoryview:
    """Private zeroed memory, page-aligned, num_bytes long (rounded up to ALIGNMENT)."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, round_up(num_bytes, ALIGNMENT), flags=flags))


class UncachedFile:
    """A file open for reading whose pages do not stay in the page cache. One owner closes it.

    is_direct tells whether the kernel bypasses the cache, or each read gives its pages back afterwards.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd, self.is_direct = _open(path)
        except FileNotFoundError as error:
            raise ModelFileMissing(f"{path} is missing", "convert the checkpoint again, or restore the file") from error
        except OSError as error:
            raise ReadFailed(path, 0, 0, error.strerror or repr(error)) from error
        self.num_bytes = os.fstat(self._fd).st_size

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset`. view's address and length and offset are multiples of ALIGNMENT; only the
        last block of the file may be shorter, and then the rest of the view is left as it was.

        Raises ReadFailed when the system refuses, or the file ends before the view's last block.
        """
        wanted = min(len(view), self.num_bytes - offset)
        done = 0
        while done < wanted:
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                raise ReadFailed(self.path, offset, len(view), error.strerror or repr(error)) from error
            if got == 0:
                break
            done += got
        if done < wanted or wanted <= 0:
            raise ReadFailed(self.path, offset, len(view), f"the file ends after {max(done, 0)} B of them")
        if not self.is_direct:
            _give_pages_back(self._fd, offset, wanted)

    def fileno(self) -> int:
        """The descriptor, for who reads by himself."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; reading afterwards is a mistake."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_blocks(path: Path, start: int, num_bytes: int, buffer: memoryview) -> Iterator[memoryview]:
    """The bytes [start, start + num_bytes) of a file, in order, through `buffer` (an aligned_buffer).

    Each piece is valid until the next is asked for. start need not be aligned.
    """
    with UncachedFile(path) as file:
        end = start + num_bytes
        position = start
        while position < end:
            base = position - position % ALIGNMENT
            window = buffer[: min(len(buffer), round_up(end - base, ALIGNMENT))]
            file.read_into(window, base)
            stop = min(end, base + len(window), file.num_bytes)
            if stop <= position:
                raise ReadFailed(path, position, end - position, f"the file has only {file.num_bytes} B")
            yield window[position - base : stop - base]
            position = stop


def _open(path: Path) -> tuple[int, bool]:
    if sys.platform == "darwin":
        import fcntl

        fd = os.open(path, os.O_RDONLY)
        fcntl.fcntl(fd, _F_NOCACHE, 1)
        return fd, True
    try:
        return os.open(path, os.O_RDONLY | _O_DIRECT), bool(_O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:  # tmpfs and some overlays refuse O_DIRECT so
            raise
    return os.open(path, os.O_RDONLY), False


def _give_pages_back(fd: int, offset: int, num_bytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, num_bytes, os.POSIX_FADV_DONTNEED)
