"""Whose turn it is: which request begins next, and whether a prompt or the answers get the next step.

Owns fairness, as pure data: between clients, each in turn; between reading prompts and decoding, equal time.
Refuses to know threads, bands and what a request asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items in line by client: clients take turns, one client's items keep their order."""

    def __init__(self, client_of: Callable[[Item], str]) -> None:
        self._client_of = client_of
        self._lines: dict[str, deque[Item]] = {}  # in the order of turns

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Item]:
        return (item for line in list(self._lines.values()) for item in list(line))

    def push(self, item: Item) -> None:
        """Join the end of the client's line."""
        self._lines.setdefault(self._client_of(item), deque()).append(item)

    def pop(self) -> Item:
        """The next item; its client goes to the end of the turns. Raises LookupError when empty."""
        client = next(iter(self._lines), None)
        if client is None:
            raise LookupError("nothing waits")
        line = self._lines.pop(client)
        item = line.popleft()
        if line:
            self._lines[client] = line
        return item

    def remove(self, item: Item) -> None:
        """Leave the line; nothing happens where it is not in it."""
        client = self._client_of(item)
        line = self._lines.get(client)
        if line is not None and item in line:
            line.remove(item)
            if not line:
                del self._lines[client]


class TimeShare:
    """Equal time for prompts and for answers while there are both: a chunk of a prompt may take as long as many
    tokens of an answer, and answers that crawl look broken."""

    def __init__(self) -> None:
        self._ahead_s = 0.0  # what prompts have had more than answers

    def prefers_answers(self, *, has_prompts: bool, has_answers: bool) -> bool:
        """Whether the next step decodes; one of both is there."""
        if not (has_prompts and has_answers):
            self._ahead_s = 0.0
            return has_answers
        return self._ahead_s > 0

    def spent(self, seconds: float, *, on_answers: bool) -> None:
        """A step took so long."""
        self._ahead_s += -seconds if on_answers else seconds
