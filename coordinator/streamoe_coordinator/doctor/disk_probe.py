"""How fast records come off a disk, past the page cache.

Owns: scratch files that no crash can leave behind, buffers of ordinary or huge pages, readers in threads, the clock.
Refuses to judge the figures.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamoe_engine.errors import ReadFailed
from streamoe_engine.huge_pages import HUGE_PAGE_BYTES
from streamoe_engine.sizes import GIB, MIB, round_up
from streamoe_engine.uncached import ALIGNMENT, UncachedFile, aligned_buffer

# One expert of a 35B-A3B model in 4 bits, the size the engine was measured with.
RECORD_BYTES = 1_769_472
SCRATCH_BYTES = 512 * MIB
_F_NOCACHE = 48  # <sys/fcntl.h> on macOS
_SEED = 7

Pages = Literal["ordinary", "huge"]


@dataclass(frozen=True, slots=True)
class ReadSpeed:
    """One measurement: random reads of record_bytes each by num_readers threads into buffers of such pages.

    is_direct: the file system let the reads pass its cache by itself.
    """

    pages: Pages
    num_readers: int
    record_bytes: int
    num_bytes: int
    seconds: float
    is_direct: bool

    @property
    def gb_per_s(self) -> float:
        """10**9 bytes a second."""
        return self.num_bytes / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class Region:
    """One place to read from: an open file and an aligned offset with a whole record behind it."""

    file: UncachedFile
    offset: int


def measure_scratch(folder: Path, seconds_each: float = 0.4, scratch_bytes: int = SCRATCH_BYTES) -> list[ReadSpeed]:
    """Speeds from a fresh file in `folder`, gone again in every case. Raises OSError when it cannot be written, and
    ReadFailed."""
    with scratch_file(folder, scratch_bytes) as file:
        return _measure(_regions([file], RECORD_BYTES), RECORD_BYTES, seconds_each)


def measure_files(paths: Sequence[Path], record_bytes: int, seconds_each: float = 0.4) -> list[ReadSpeed]:
    """Speeds from files that exist, such as a model's record files. Raises ModelFileMissing and ReadFailed.

    An empty list where no file holds a whole record.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(UncachedFile(path)) for path in paths]
        regions = _regions(files, record_bytes)
        return _measure(regions, record_bytes, seconds_each) if regions else []


@contextmanager
def scratch_file(folder: Path, num_bytes: int) -> Iterator[UncachedFile]:
    """A file of random bytes without a name: it is unlinked before it is filled, so that even a kill leaves nothing.

    num_bytes is a multiple of ALIGNMENT. Raises OSError.
    """
    path = folder / f".streamoe-doctor-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        fd, is_direct = _create(path)
        stack.callback(os.close, fd)
        try:
            os.ftruncate(fd, num_bytes)
            file = stack.enter_context(UncachedFile(path))
        finally:
            path.unlink()
        _fill(fd, num_bytes)
        if not is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        yield file


def _create(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    if sys.platform == "darwin":
        import fcntl

        fd = os.open(path, flags, 0o600)
        fcntl.fcntl(fd, _F_NOCACHE, 1)
        return fd, True
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    except OSError:
        with suppress(FileNotFoundError):  # some file systems make the file, then refuse the flag
            path.unlink()
        return os.open(path, flags, 0o600), False


def _fill(fd: int, num_bytes: int) -> None:
    # Random, so that a compressing file system cannot shrink it.
    block = aligned_buffer(min(16 * MIB, num_bytes))
    block[:] = random.Random(_SEED).randbytes(len(block))
    for offset in range(0, num_bytes, len(block)):
        piece = block[: min(len(block), num_bytes - offset)]
        done = 0
        while done < len(piece):
            done += os.pwrite(fd, piece[done:], offset + done)
    os.fsync(fd)


def _regions(files: Sequence[UncachedFile], record_bytes: int) -> list[Region]:
    # All whole records, in one random order: each is read once before any is read again.
    stride = round_up(record_bytes, ALIGNMENT)
    found = [Region(file, at) for file in files for at in range(0, file.num_bytes - stride + 1, stride)]
    random.Random(_SEED).shuffle(found)
    return found


def _measure(regions: Sequence[Region], record_bytes: int, seconds_each: float) -> list[ReadSpeed]:
    kinds: tuple[Pages, ...] = ("ordinary", "huge") if sys.platform == "linux" else ("ordinary",)
    order = itertools.cycle(regions)
    return [_speed(order, pages, readers, record_bytes, seconds_each) for pages in kinds for readers in (1, 2)]


def _speed(order: Iterator[Region], pages: Pages, num_readers: int, record_bytes: int, limit_s: float) -> ReadSpeed:
    buffers = [_buffer(round_up(record_bytes, ALIGNMENT), pages) for _ in range(num_readers)]
    team = _Readers(order, time.perf_counter() + limit_s)
    threads = [threading.Thread(target=team.read, args=(buffer,)) for buffer in buffers]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - started_s
    if team.errors:
        raise team.errors[0]
    return ReadSpeed(pages, num_readers, record_bytes, team.num_bytes, elapsed_s, team.is_direct)


class _Readers:
    """What the reader threads of one measurement share: the next place to read, and the sums."""

    def __init__(self, order: Iterator[Region], deadline_s: float) -> None:
        self._order, self._deadline_s, self._lock = order, deadline_s, threading.Lock()
        self.num_bytes, self.is_direct = 0, True
        self.errors: list[ReadFailed] = []

    def read(self, buffer: memoryview) -> None:
        """Read records until the time is over; at least one."""
        while not self.errors:
            with self._lock:
                region = next(self._order)
            try:
                region.file.read_into(buffer, region.offset)
            except ReadFailed as error:
                self.errors.append(error)
                return
            with self._lock:
                self.num_bytes += len(buffer)
                self.is_direct &= region.file.is_direct
            if time.perf_counter() >= self._deadline_s:
                return


def _buffer(num_bytes: int, pages: Pages) -> memoryview:
    # Touched once, so that no page is made inside the clock. Ordinary pages are asked for too: a machine may give
    # huge ones to everybody.
    memory = mmap.mmap(-1, num_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with suppress(OSError):  # EINVAL: a kernel built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE if pages == "huge" else mmap.MADV_NOHUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE_BYTES
    memory[start : start + num_bytes] = bytes(num_bytes)
    return memoryview(memory)[start : start + num_bytes]


def scratch_size(free_bytes: int) -> int:
    """How large a scratch file may be: SCRATCH_BYTES or a quarter of what is free, whole records; 0 if too little."""
    wanted = min(SCRATCH_BYTES, free_bytes // 4)
    return 0 if free_bytes < GIB // 4 else wanted // RECORD_BYTES * RECORD_BYTES
