"""Bytes in and out of the streams of steps, since the node's start."""

from __future__ import annotations

import threading


class Traffic:
    """Two counters; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received_bytes = self.sent_bytes = 0

    def received(self, num_bytes: int) -> None:
        """Count bytes that came."""
        with self._lock:
            self.received_bytes += num_bytes

    def sent(self, num_bytes: int) -> None:
        """Count bytes that went."""
        with self._lock:
            self.sent_bytes += num_bytes
