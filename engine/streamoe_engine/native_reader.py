"""Reads in the background by threads in C: `reader.Reader` without the interpreter's lock.

Owns the binding. A Python thread that has read must wait for that lock, and the compute thread then for it in turn.
Refuses to know what a record means, and whether a guess was right.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .errors import PlatformUnsupported, ReadFailed
from .kernels import shared_library
from .reader import Read, Reader, ReadsRecords, ReadState

_WAIT_MS: Final = 50  # then the interpreter looks at signals


def make_reader(num_threads: int) -> ReadsRecords:
    """A reader in C where the library is there, else one in Python. Raises PlatformUnsupported."""
    lib = shared_library()
    return Reader(num_threads) if lib is None else NativeReader(lib, num_threads)


class CRead(ctypes.Structure):
    """st_read."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("before", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("offset", "length", "bytes", "got", "finished")),
        *((name, ctypes.c_int32) for name in ("fd", "gives_back", "state", "is_demand", "error", "reserved")),
    )


class NativeReader:
    """See reader.Reader. Raises PlatformUnsupported when the system refuses a thread."""

    def __init__(self, lib: ctypes.CDLL, num_threads: int, *, starts: bool = True) -> None:
        self._lib, self._handle = _declared(lib), lib.st_reader_new()
        self._num_threads = num_threads
        if starts:
            self.start()

    def start(self) -> None:
        """Start the threads; what was submitted before waits until then."""
        if self._lib.st_reader_start(self._handle, self._num_threads) < self._num_threads:
            self._lib.st_reader_free(self._handle)
            raise PlatformUnsupported(f"the system refused {self._num_threads} threads", "give fewer --reader-threads")

    def submit(self, reads: Sequence[Read], *, demand: bool) -> None:
        """Queue reads in the order given; demand goes before every guess that has not started."""
        self._submit((), reads, demand)

    def demand(self, guessed: Sequence[Read], others: Sequence[Read]) -> None:
        """Make guesses that turned out right part of the demand, and queue others behind them."""
        self._submit(guessed, others, True)

    def promote(self, reads: Iterable[Read]) -> None:
        """Make guesses that turned out right, and have not started, part of the demand."""
        self._submit(tuple(reads), (), True)

    def cancel(self, read: Read) -> bool:
        """Take back a guess that has not started. False when it is too late."""
        if not self._lib.st_reader_cancel(self._handle, ctypes.addressof(read.native)):
            return False
        read.state = ReadState.CANCELLED
        return True

    def look(self, reads: Iterable[Read]) -> None:
        """Bring the state of reads up to date; without that, or a wait, it is as of the last one."""
        self._wait(tuple(reads), 0)

    def wait_for_any(self, reads: Sequence[Read]) -> None:
        """Return when at least one is done, well or not."""
        while not self._wait(reads, 1):
            pass

    def wait_for_all(self, reads: Iterable[Read]) -> None:
        """Return when all are done, well or not."""
        reads = tuple(reads)
        while self._wait(reads, len(reads)) < len(reads):
            pass

    def drain(self) -> None:
        """Drop the queued reads and return when no thread is busy: no slot is written to afterwards."""
        while not self._lib.st_reader_drain(self._handle, _WAIT_MS):
            pass

    def close(self) -> None:
        """Finish the reads that run, drop the queued ones, and end the threads."""
        if self._handle is not None:
            self.drain()
            self._lib.st_reader_free(self._handle)
            self._handle = None

    def _submit(self, guessed: Sequence[Read], reads: Sequence[Read], demand: bool) -> None:
        for read in reads:
            read.native, read.is_demand = _described(read), demand
        if guessed or reads:
            args = (_addresses(guessed), len(guessed), _addresses(reads), len(reads), demand)
            self._lib.st_reader_submit(self._handle, *args)

    def _wait(self, reads: Sequence[Read], enough: int) -> int:
        done = (ctypes.c_uint8 * len(reads))()
        count: int = self._lib.st_reader_wait(self._handle, _addresses(reads), len(reads), enough, _WAIT_MS, done)
        for read, is_done in zip(reads, done, strict=True):
            if is_done and read.state is not ReadState.DONE:
                read.error = _error_of(read)
                read.state = ReadState.DONE
        return count


def _described(read: Read) -> CRead:
    file, length = read.file, len(read.view)
    address = ctypes.addressof(ctypes.c_char.from_buffer(read.view))
    wanted = min(length, file.num_bytes - read.offset)
    # A range behind the file's end has no bytes: one is asked for, so that the end is met.
    return CRead(
        to=address,
        offset=read.offset,
        length=length,
        bytes=max(wanted, 1),
        fd=file.fileno(),
        gives_back=not file.is_direct,
    )


def _error_of(read: Read) -> ReadFailed | None:
    code, native = read.native.error, read.native
    if code == 0:
        return None
    reason = os.strerror(code) if code > 0 else f"the file ends after {native.got} B of them"
    return ReadFailed(read.file.path, read.offset, native.length, reason)


def _addresses(reads: Sequence[Read]) -> Any:
    return (ctypes.c_void_p * len(reads))(*[ctypes.addressof(read.native) for read in reads])


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, integer, i64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    lib.st_reader_new.argtypes, lib.st_reader_new.restype = (), pointer
    lib.st_reader_start.argtypes, lib.st_reader_start.restype = (pointer, integer), integer
    lib.st_reader_submit.argtypes = (pointer, pointer, i64, pointer, i64, integer)
    lib.st_reader_submit.restype = None
    lib.st_reader_cancel.argtypes, lib.st_reader_cancel.restype = (pointer, pointer), integer
    lib.st_reader_wait.argtypes, lib.st_reader_wait.restype = (pointer, pointer, i64, i64, i64, pointer), i64
    lib.st_reader_drain.argtypes, lib.st_reader_drain.restype = (pointer, i64), integer
    lib.st_reader_free.argtypes, lib.st_reader_free.restype = (pointer,), None
    return lib
