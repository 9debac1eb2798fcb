"""Stopping an answer from outside.

Owns the stop flag and its tie to Ctrl-C: the first one asks the answer to stop, the second ends the program.
Refuses to know what is being stopped.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Asks a running answer to stop at its next token or chunk."""

    def __init__(self) -> None:
        self.is_set = False

    def request(self) -> None:
        """Ask; may be called from a signal handler or another thread."""
        self.is_set = True


@contextmanager
def stops_on_interrupt() -> Iterator[StopFlag]:
    """While inside, Ctrl-C sets the flag; another raises KeyboardInterrupt. Main thread only."""
    flag = StopFlag()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if flag.is_set:
            raise KeyboardInterrupt
        flag.request()

    earlier = signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, earlier)


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """While inside, a Ctrl-C that nobody waits for does nothing: not even between an answer and the next prompt."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
