"""Words that users type, made into values: ranges of layers, names from a list.

Owns what they may look like, for nodes and coordinators. Refuses to know what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamoe_engine.errors import UsageError


def parse_layers(text: str) -> tuple[int, int]:
    """ "0-19" is (0, 19), both included; "7" is (7, 7). Raises UsageError."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(f"'{text}' is not a range of layers", "give the first and the last, both included: 0-19")
    return int(first), int(last or first)


def check_word(flag: str, value: str | None, words: Sequence[str]) -> None:
    """Raises UsageError for a value that is not in `words`; None is none."""
    if value is not None and value not in words:
        raise UsageError(f"{flag} {value} is not known", f"use one of {', '.join(words)}")
