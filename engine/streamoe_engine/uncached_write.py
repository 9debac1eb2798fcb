"""New files written past the page cache, and buffers that direct transfers are fast into.

Owns: O_DIRECT on Linux, F_NOCACHE on macOS, and where a file system refuses both, ordinary writes whose pages are
given back once they are on the disk. Every failure becomes ConversionFailed here, with the file and the figure.
Refuses to know what the bytes mean.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from .errors import ConversionFailed
from .sizes import format_size, round_up
from .uncached import ALIGNMENT

_F_NOCACHE = 48  # <sys/fcntl.h> on macOS
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class UncachedWriter:
    """One new file, written front to back. One owner calls finish() or abandon().

    An existing file of that name is emptied first.
    """

    def __init__(self, path: Path, expected_bytes: int) -> None:
        """expected_bytes is named in errors. Raises ConversionFailed."""
        self.path, self.expected_bytes = path, expected_bytes
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd, self.is_direct = _create(path)
        except OSError as error:
            raise self._failed("creating", 0, error) from error

    def write(self, view: memoryview, offset: int) -> None:
        """Write the view at offset. Address, length and offset are multiples of ALIGNMENT. Raises ConversionFailed."""
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], offset + done)
            if not self.is_direct:
                _give_pages_back(self._fd, offset, len(view))
        except OSError as error:
            raise self._failed("writing", offset + done, error) from error

    def finish(self, num_bytes: int) -> None:
        """Cut the file to num_bytes, wait until the disk has it, and close. Raises ConversionFailed."""
        try:
            os.ftruncate(self._fd, num_bytes)
            os.fsync(self._fd)
        except OSError as error:
            raise self._failed("finishing", num_bytes, error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close, however much was written. Writing afterwards is a mistake."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _failed(self, doing: str, offset: int, error: OSError) -> ConversionFailed:
        return write_failure(f"{doing} {self.path} failed at {offset} B of {self.expected_bytes} B", error, self.path)


def write_failure(what: str, error: OSError, path: Path) -> ConversionFailed:
    """The error for a refused write: what was tried, the system's cause, and what to do about it."""
    cause = error.strerror or repr(error)
    if error.errno not in _NO_SPACE:
        return ConversionFailed(
            f"{what}: {cause}", "check the disk and its permissions, then run the same command again"
        )
    folder = next(parent for parent in path.parents if parent.exists())
    return ConversionFailed(
        f"{what}: {cause} ({format_size(free_bytes(folder))} free at {folder})",
        "free some space, then run the same command again: finished files are kept",
    )


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write on the file system of `folder`."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def sync(path: Path) -> None:
    """Wait until the disk has a file's bytes, or a folder's entries. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def aligned_part(num_bytes: int) -> int:
    """The largest length not above num_bytes that may be written directly."""
    return num_bytes - num_bytes % ALIGNMENT


def padded(num_bytes: int) -> int:
    """The smallest length not below num_bytes that may be written directly."""
    return round_up(num_bytes, ALIGNMENT)


def _create(path: Path) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    if sys.platform == "darwin":
        import fcntl

        fd = os.open(path, flags, 0o644)
        fcntl.fcntl(fd, _F_NOCACHE, 1)
        return fd, True
    try:
        return os.open(path, flags | _O_DIRECT, 0o644), bool(_O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems without direct transfers refuse so
            raise
    return os.open(path, flags, 0o644), False


def _give_pages_back(fd: int, offset: int, num_bytes: int) -> None:
    os.fsync(fd)  # only clean pages can be given back
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, num_bytes, os.POSIX_FADV_DONTNEED)
