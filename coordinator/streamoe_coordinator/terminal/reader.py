'''Messages a person types, or a pipe holds.

Owns line editing, the history file, and blocks of several lines between """ marks. Refuses to know what a message
means. prompt_toolkit costs 10 MiB: it is imported for a terminal only, and before the plan is made.
'''

from __future__ import annotations

import sys
from typing import Protocol, TextIO

import platformdirs

BLOCK_MARK = '"""'


class Reader(Protocol):
    """Where messages come from. has_keys: a person types them, and Ctrl-C throws the line away."""

    has_keys: bool

    def read(self) -> str | None:
        """The next message, None at the end. Raises KeyboardInterrupt for Ctrl-C."""


class PipeReader:
    """One message a line, or a block."""

    has_keys = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self) -> str | None:
        """The next message; an unfinished block at the end of the input counts as one."""
        text = ""
        while line := self._stream.readline():
            text += line
            if not is_open_block(text):
                break
        return without_marks(text) if text else None


def make_reader() -> Reader:
    """A line editor where both ends are a terminal, else the lines of stdin."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PipeReader(sys.stdin)
    from .editor import LineEditor

    return LineEditor(platformdirs.user_state_path("streamoe") / "history")


def is_open_block(text: str) -> bool:
    """Whether a block was begun and not ended."""
    return text.count(BLOCK_MARK) % 2 == 1


def without_marks(text: str) -> str:
    """A message without its block marks and the space around it."""
    return text.replace(BLOCK_MARK, "").strip()
