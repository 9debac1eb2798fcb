"""Waiting for what comes a moment later: another process's counter, a thread's end, a node's word.

Owns the one deadline of the tests: long enough that only what never comes passes it, whatever else the machine does.
Refuses to know what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LONG_S = 60.0
_POLL_S = 0.02
Value = TypeVar("Value")


def eventually(value_of: Callable[[], Value], *, within_s: float = LONG_S) -> Value:
    """The first value that is true; asked again and again. Raises AssertionError with the last one after within_s."""
    end_s = time.monotonic() + within_s
    while not (value := value_of()):
        assert time.monotonic() < end_s, f"never came to be so in {within_s:.0f} s; last: {value!r}"
        time.sleep(_POLL_S)
    return value


def comes_to(value_of: Callable[[], Value], wanted: Value, *, within_s: float = LONG_S) -> None:
    """Until the value is `wanted`. Raises AssertionError with the last one after within_s."""
    end_s = time.monotonic() + within_s
    while (value := value_of()) != wanted:
        assert time.monotonic() < end_s, f"never came to {wanted!r} in {within_s:.0f} s; last: {value!r}"
        time.sleep(_POLL_S)
