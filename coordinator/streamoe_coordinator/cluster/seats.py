"""Who serves each band of a chain now: all sessions look here, and a session that had to move a band writes here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from .ports import Seat


class Seats:
    """The chain's seats in layer order. Any thread. on_change(band, seat) is called after a change."""

    def __init__(self, seats: Sequence[Seat], on_change: Callable[[int, Seat], None] = lambda *_: None) -> None:
        self._seats = list(seats)
        self._on_change = on_change
        self._lock = threading.Lock()

    def __getitem__(self, band: int) -> Seat:
        return self._seats[band]

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(tuple(self._seats))

    def move(self, band: int, seat: Seat) -> None:
        """The band is served here from now on."""
        with self._lock:
            self._seats[band] = seat
        self._on_change(band, seat)
