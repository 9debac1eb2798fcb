"""A deadline between the messages of a stream: gRPC has one for the whole call only.

Owns the timer's thread while a stream is read. Refuses to know what the messages are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class CancellableStream(Protocol[T_co]):
    """A gRPC response stream, or what behaves like one."""

    def __iter__(self) -> Iterator[T_co]:
        """Its messages."""
        ...

    def cancel(self) -> object:
        """End it: whoever reads gets an error."""
        ...


def watched(stream: CancellableStream[T_co], idle_s: float) -> Iterator[T_co]:
    """The messages of a stream; it is cancelled when none comes for idle_s, and in any case when the caller leaves."""
    last_s, is_over = time.monotonic(), threading.Event()

    def watch() -> None:
        while not is_over.wait(max(0.05, last_s + idle_s - time.monotonic())):
            if time.monotonic() - last_s >= idle_s:
                stream.cancel()
                return

    watcher = threading.Thread(target=watch, daemon=True, name="stream watch")
    watcher.start()
    try:
        for message in stream:
            last_s = time.monotonic()
            yield message
            last_s = time.monotonic()  # the caller's own time is not the peer's silence
    finally:
        is_over.set()
        stream.cancel()
        watcher.join()
