"""Reads in the background: a few threads fill slots while the compute thread computes.

Owns the threads and the queue: demand before guesses, a guess not yet started can be cancelled or promoted.
Refuses to know what a record means, and whether a guess was right.

Two threads are the default: with four to eight, guesses share the disk with the records being waited for
(7.7 against 9.0 tok/s in the prototype, docs/lab-log.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from .errors import StreamoeError
from .uncached import UncachedFile

DEFAULT_READER_THREADS = 2


class ReadState(Enum):
    """Where a read is: waiting for a thread, being done, done (well or not), or taken back before it began."""

    QUEUED = auto()
    RUNNING = auto()
    DONE = auto()
    CANCELLED = auto()


class Read:
    """One record on its way into one slot. Only the reader changes `state` and `error`."""

    __slots__ = ("error", "file", "is_demand", "key", "native", "offset", "slot", "state", "view")

    def __init__(self, key: int, slot: int, file: UncachedFile, offset: int, view: memoryview) -> None:
        self.key, self.slot, self.file, self.offset, self.view = key, slot, file, offset, view
        self.state = ReadState.QUEUED
        self.is_demand = False
        self.error: StreamoeError | None = None
        self.native: Any = None  # what a reader in C knows of it

    @property
    def is_done(self) -> bool:
        """True once the bytes are in the slot, or the read has failed."""
        return self.state is ReadState.DONE


class ReadsRecords(Protocol):
    """The reading threads. All calls belong to the compute thread."""

    def submit(self, reads: Sequence[Read], *, demand: bool) -> None:
        """Queue reads in the order given; demand goes before every guess that has not started."""

    def demand(self, guessed: Sequence[Read], others: Sequence[Read]) -> None:
        """Make guesses that turned out right part of the demand, and queue others behind them."""

    def promote(self, reads: Iterable[Read]) -> None:
        """Make guesses that turned out right, and have not started, part of the demand."""

    def cancel(self, read: Read) -> bool:
        """Take back a guess that has not started. False when it is too late."""
        ...

    def look(self, reads: Iterable[Read]) -> None:
        """Bring the state of reads up to date; without that, or a wait, it may be an older one."""

    def wait_for_any(self, reads: Sequence[Read]) -> None:
        """Return when at least one is done, well or not."""

    def wait_for_all(self, reads: Iterable[Read]) -> None:
        """Return when all are done, well or not."""

    def drain(self) -> None:
        """Drop the queued reads and return when no thread is busy: no slot is written to afterwards."""

    def close(self) -> None:
        """Finish the reads that run, drop the queued ones, and end the threads."""


class Reader:
    """Reading by Python threads, where there is no library in C (native_reader). See ReadsRecords."""

    def __init__(self, num_threads: int = DEFAULT_READER_THREADS) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._landed = threading.Condition(self._lock)
        self._demand: deque[Read] = deque()
        self._guesses: deque[Read] = deque()
        self._num_running = 0
        self._closing = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"streamoe-read-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, reads: Sequence[Read], *, demand: bool) -> None:
        """Queue reads in the order given; demand goes before every guess that has not started."""
        if reads:
            with self._lock:
                (self._demand if demand else self._guesses).extend(reads)
                for read in reads:
                    read.is_demand = demand
                self._work.notify(len(reads))

    def demand(self, guessed: Sequence[Read], others: Sequence[Read]) -> None:
        """Make guesses that turned out right part of the demand, and queue others behind them."""
        self.promote(guessed)
        self.submit(others, demand=True)

    def promote(self, reads: Iterable[Read]) -> None:
        """Make guesses that turned out right, and have not started, part of the demand."""
        with self._lock:
            for read in reads:
                if read.state is ReadState.QUEUED and not read.is_demand:
                    self._guesses.remove(read)
                    self._demand.append(read)
                    read.is_demand = True

    def cancel(self, read: Read) -> bool:
        """Take back a guess that has not started. False when it is too late."""
        with self._lock:
            if read.state is not ReadState.QUEUED:
                return False
            self._guesses.remove(read)
            read.state = ReadState.CANCELLED
            return True

    def look(self, reads: Iterable[Read]) -> None:
        """Nothing: states are always up to date."""

    def wait_for_any(self, reads: Sequence[Read]) -> None:
        """Return when at least one is done, well or not."""
        with self._lock:
            self._landed.wait_for(lambda: any(read.is_done for read in reads))

    def wait_for_all(self, reads: Iterable[Read]) -> None:
        """Return when all are done, well or not."""
        reads = tuple(reads)
        with self._lock:
            self._landed.wait_for(lambda: all(read.is_done for read in reads))

    def drain(self) -> None:
        """Drop the queued reads and return when no thread is busy: no slot is written to afterwards."""
        with self._lock:
            for queue in (self._demand, self._guesses):
                for read in queue:
                    read.state = ReadState.CANCELLED
                queue.clear()
            self._landed.wait_for(lambda: self._num_running == 0)

    def close(self) -> None:
        """Finish the reads that run, drop the queued ones, and end the threads."""
        self.drain()
        with self._lock:
            self._closing = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (read := self._next()) is not None:
            try:
                read.file.read_into(read.view, read.offset)
            except StreamoeError as error:
                read.error = error
            with self._lock:
                read.state = ReadState.DONE
                self._num_running -= 1
                self._landed.notify_all()

    def _next(self) -> Read | None:
        with self._lock:
            self._work.wait_for(lambda: self._demand or self._guesses or self._closing)
            if self._closing:
                return None
            read = (self._demand or self._guesses).popleft()
            read.state = ReadState.RUNNING
            self._num_running += 1
            return read
