"""Virtual time: tasks that wait, and events in the order of their time.

Every thread of the real thing is a greenlet here, so blocking code runs as it is, and one seed is one history.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

T = TypeVar("T")
_NOTHING = object()


class World:
    """The clock and what will happen. Events of one time happen in the order they were made."""

    def __init__(self, *, is_told: bool = False) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0
        self._hub = getcurrent()
        self._is_told = is_told
        self.lines: list[str] = []

    def tell(self, text: str) -> None:
        """A line of the log, where one is kept."""
        if self._is_told:
            self.lines.append(f"{self.now_s:10.4f}  {text}")

    @property
    def is_told(self) -> bool:
        """Whether a log is kept: describing a frame costs time."""
        return self._is_told

    def at(self, delay_s: float, act: Callable[..., Any], *arguments: Any) -> None:
        """Have something happen."""
        self._count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._count, act, arguments))

    def spawn(self, act: Callable[[], Any]) -> greenlet:
        """Begin a task, at once."""
        task = greenlet(act, parent=self._hub)
        self.at(0.0, task.switch)
        return task

    def kill(self, task: greenlet) -> None:
        """End a task where it waits."""
        if getcurrent() is not self._hub:
            self.at(0.0, self.kill, task)  # who ends a task goes on himself
        elif not task.dead:
            task.throw(GreenletExit)

    def sleep(self, seconds: float) -> None:
        """Let time pass, in a task."""
        self.at(max(0.0, seconds), _wake, getcurrent())
        self._hub.switch()

    def run(self, is_over: Callable[[], bool], most_s: float) -> None:
        """Let events happen until it is over, nothing is left, or most_s more seconds have passed."""
        until_s = self.now_s + most_s
        while self._events and not is_over():
            if self._events[0][0] > until_s:
                self.now_s = until_s
                return
            self.now_s, _, act, arguments = heapq.heappop(self._events)
            act(*arguments)


class Mailbox(Generic[T]):
    """Things for a task that waits for them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[T] = deque()
        self._waiting: greenlet | None = None
        self._turn = 0

    def put(self, item: T) -> None:
        """Add a thing; who waits goes on, in this moment but after what happens now."""
        self._items.append(item)
        if self._waiting is not None:
            task, self._waiting = self._waiting, None
            self._turn += 1
            self._world.at(0.0, _wake, task)

    def get(self, timeout_s: float | None) -> T | None:
        """The next thing; None when none came in time."""
        if not self._items and timeout_s != 0:
            self._turn += 1
            self._waiting = getcurrent()
            if timeout_s is not None:
                self._world.at(timeout_s, self._give_up, self._turn)
            self._world._hub.switch()
        return self._items.popleft() if self._items else None

    def _give_up(self, turn: int) -> None:
        if turn == self._turn and self._waiting is not None:
            task, self._waiting = self._waiting, None
            _wake(task)


def _wake(task: greenlet) -> None:
    if not task.dead:
        task.switch()
