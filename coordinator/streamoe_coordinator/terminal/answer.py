"""An answer on its way to a terminal or a pipe.

Owns which stream each kind of event goes to: the answer to stdout, thinking dimmed beside it or, where stdout is no
terminal, to stderr with progress. Refuses to know where events come from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from ..events import Event, Finished, PrefillProgress, Shown, TokenEvent
from .style import ProgressLine, dim


def show_answer(events: Iterable[Event], out: TextIO | None) -> Shown:
    """Write an answer as it comes; out None: only progress is shown."""
    printer, progress = _Printer(out), ProgressLine(sys.stderr)
    finished: Finished | None = None
    try:
        for event in events:
            if isinstance(event, PrefillProgress) and event.done_tokens < event.total_tokens:
                progress.update(_progress_text(event))
            elif isinstance(event, TokenEvent):
                progress.clear()
                printer.add(event)
            elif isinstance(event, Finished):
                finished = event
    finally:
        progress.clear()
        printer.end()
    assert finished is not None, "an answer ends with Finished or an error"
    return Shown(printer.text, printer.thinking, finished)


class _Printer:
    """Text so far, and where the cursor is."""

    def __init__(self, out: TextIO | None) -> None:
        self._out = out
        self._thinking_out = None if out is None else out if out.isatty() else sys.stderr
        self._open_line: TextIO | None = None  # the stream whose last character was not a newline
        self.text = self.thinking = ""

    def add(self, event: TokenEvent) -> None:
        text = event.text
        if event.is_thinking:
            self.thinking += text
            self._write(self._thinking_out, text, is_dim=True)
            return
        if not self.text and self.thinking:  # templates put blank lines between thinking and answer
            text = text.lstrip("\n")
            if text and self._open_line is not None:
                self._write(self._open_line, "\n")
        self.text += text
        self._write(self._out, text)

    def end(self) -> None:
        """Leave the cursor at the start of a line."""
        if self._open_line is not None:
            self._write(self._open_line, "\n")

    def _write(self, stream: TextIO | None, text: str, *, is_dim: bool = False) -> None:
        if stream is None or not text:
            return
        stream.write(dim(text, stream) if is_dim else text)
        stream.flush()
        self._open_line = None if text.endswith("\n") else stream


def _progress_text(event: PrefillProgress) -> str:
    left_s = event.elapsed_s * (event.total_tokens - event.done_tokens) / max(event.done_tokens, 1)
    return f"prompt {event.done_tokens}/{event.total_tokens} tokens, {left_s:.0f} s left"
