"""How long one run may spend on getting lost bands back, all of its bands together.

Owns one deadline. It begins with the first trouble; time in which a replay moves on is given back to it.
"""

from __future__ import annotations

from .ports import Clock


class Budget:
    """seconds from the first trouble on. One thread."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self.seconds = clock, seconds
        self._deadline_s: float | None = None

    def begin(self) -> None:
        """There is trouble; nothing happens where there was some before."""
        if self._deadline_s is None:
            self._deadline_s = self._clock.now_s() + self.seconds

    @property
    def deadline_s(self) -> float:
        """When it is spent, by the clock; as if it began now where it has not."""
        return self._clock.now_s() + self.seconds if self._deadline_s is None else self._deadline_s

    @property
    def left_s(self) -> float:
        """What is left, 0 at least."""
        return max(0.0, self.deadline_s - self._clock.now_s())

    def give_back(self, seconds: float) -> None:
        """So much of it was spent on moving on."""
        if self._deadline_s is not None:
            self._deadline_s += seconds
