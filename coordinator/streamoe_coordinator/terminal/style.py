"""Dim text, and one line of progress that is rewritten in place.

Owns terminal codes. Where a stream is no terminal, or NO_COLOR is set, text stays plain and progress becomes lines.
"""

from __future__ import annotations

import os
import time
from typing import TextIO

_CLEAR_LINE = "\r\x1b[2K"
_FIRST_AFTER_S = 0.5  # quicker work needs no progress
_EVERY_TERMINAL_S, _EVERY_LINE_S = 0.1, 5.0


def has_codes(stream: TextIO) -> bool:
    """Whether the stream is a terminal that takes codes."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """`text`, dimmed where the stream can."""
    return f"\x1b[2m{text}\x1b[0m" if has_codes(stream) else text


class ProgressLine:
    """One line about work that goes on; appears only when the work takes a while."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_rewritten = stream, has_codes(stream)
        self._next_s = time.monotonic() + _FIRST_AFTER_S
        self._is_shown = False

    def update(self, text: str) -> None:
        """Show `text`, unless the last update was just now."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (_EVERY_TERMINAL_S if self._is_rewritten else _EVERY_LINE_S)
        self._stream.write(f"{_CLEAR_LINE}{dim(text, self._stream)}" if self._is_rewritten else f"{text}\n")
        self._stream.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown and self._is_rewritten:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
        self._is_shown = False
