'''The line editor: history across runs, Enter sends, Esc-Enter or an open """ block begins a new line.

Owns prompt_toolkit; nothing else imports it.
'''

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from .reader import is_open_block, without_marks


class LineEditor:
    """Reads messages from a terminal; history_file is made on first use, readable by its owner only."""

    has_keys = True

    def __init__(self, history_file: Path) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(history_file), key_bindings=_bindings(), prompt_continuation="  "
        )

    def read(self) -> str | None:
        """The next message; None for Ctrl-D. Raises KeyboardInterrupt for Ctrl-C."""
        try:
            return without_marks(self._session.prompt("> "))
        except EOFError:
            return None


def _history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:  # a read-only home: history lasts as long as the program
        return InMemoryHistory()
    return FileHistory(str(path))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def is_in_block() -> bool:
        from prompt_toolkit.application import get_app

        return is_open_block(get_app().current_buffer.text)

    bindings.add("escape", "enter")(begin_line)
    bindings.add("enter", filter=Condition(is_in_block))(begin_line)
    return bindings
