"""The terminal chat: reads a message or a /command, shows the answer, again.

Owns the loop and the /commands. Refuses to know how answers are made and how lines are edited.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from streamoe_engine.errors import StreamoeError, UsageError
from streamoe_engine.telemetry import Snapshot

from ..interrupt import ignored_interrupts, stops_on_interrupt
from ..report import answer_line, exact_size
from ..runs_tokens import RunsTokens
from ..session import ChatSession
from .answer import show_answer
from .reader import Reader
from .style import dim
from .tables import print_counts, print_rows

_HELP = (
    ("/plan", "the plan: what the cap is used for"),
    ("/stats", "where the experts of the last answer came from, by layer"),
    ("/cap", "the cap, the memory used now, and the peak"),
    ("/ctx", "how much of the context is used"),
    ("/clear", "forget the conversation"),
    ("/save FILE", "write the conversation: JSON for a name ending in .json, else Markdown"),
    ("/think, /nothink", "let the model think first, or not, where it has the switch"),
    ("/help", "this list"),
    ("/quit", "end (also Ctrl-D)"),
    ("Ctrl-C", "stop the answer; a second time ends the program"),
    ('Esc-Enter, """', "a new line; a block of lines between two marks"),
)


ShowPlan = Callable[[TextIO], None]
More = Mapping[str, tuple[str, Callable[[str], str]]]


class TerminalChat:
    """One conversation at a terminal, or over a pipe.

    show_plan: what /plan and the beginning show. more: /commands beside those here: the help line, and what it does
    with the rest of the line, returning what to say. after_answer: called after each.
    """

    def __init__(
        self,
        band: RunsTokens,
        session: ChatSession,
        reader: Reader,
        show_plan: ShowPlan,
        more: More | None = None,
        after_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._band, self._session, self._reader = band, session, reader
        self._show_plan, self._after_answer = show_plan, after_answer
        self._notes = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._last_counts: Snapshot | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/plan": lambda _: self._show_plan(self._notes),
            "/stats": lambda _: print_counts(self._last_counts or self._band.telemetry(), self._notes),
            "/cap": lambda _: self._show_cap(),
            "/ctx": lambda _: self._show_context(),
            "/clear": lambda _: self._clear(),
            "/save": self._save,
            "/think": lambda _: self._set_thinking(True),
            "/nothink": lambda _: self._set_thinking(False),
            "/help": lambda _: print_rows(("", ""), [*_HELP, *told], self._notes),
        }
        told = []
        for name, (line, act) in (more or {}).items():
            told.append((name, line))
            self._commands[name.partition(" ")[0]] = self._saying(act)

    def run(self) -> None:
        """Until /quit, Ctrl-D or the end of the pipe. Raises KeyboardInterrupt for a second Ctrl-C in an answer."""
        with ignored_interrupts() if self._reader.has_keys else nullcontext():
            self._run()

    def _run(self) -> None:
        self._show_plan(self._notes)
        self._note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends")
        while (message := self._next_message()) is not None:
            if not message:
                continue
            if message == "/quit":
                return
            try:
                self._handle(message)
            except StreamoeError as error:
                self._note(f"error: {error}")

    def _next_message(self) -> str | None:
        try:
            return self._reader.read()
        except KeyboardInterrupt:
            if not self._reader.has_keys:
                raise
            return ""

    def _handle(self, message: str) -> None:
        word, _, rest = message.partition(" ")
        if not word.startswith("/"):
            self._answer(message)
        elif command := self._commands.get(word):
            command(rest.strip())
        else:
            raise UsageError(f"{word} is no command", "/help lists the commands")

    def _answer(self, message: str) -> None:
        with stops_on_interrupt() as stop:
            shown = show_answer(self._session.answer(message, stop), sys.stdout)
        self._last_counts = shown.finished.counts
        self._note(answer_line(shown.finished))
        self._after_answer()

    def _saying(self, act: Callable[[str], str]) -> Callable[[str], None]:
        return lambda rest: self._note(act(rest))

    def _show_cap(self) -> None:
        now = self._band.telemetry()
        self._note(f"cap {exact_size(now.budget_bytes)}")
        self._note(f"now {exact_size(now.footprint_bytes)}, peak {exact_size(now.peak_bytes)}")
        self._note("the cap holds for the whole process: to change it, start again with another --budget")

    def _show_context(self) -> None:
        used, total = self._session.num_tokens, self._band.ctx_tokens
        self._note(f"{used} of {total} tokens used; start again with --ctx to change it")

    def _clear(self) -> None:
        self._session.clear()
        self._note("the conversation is forgotten")

    def _set_thinking(self, is_on: bool) -> None:
        self._session.thinking = is_on
        self._note(f"thinking {'on' if is_on else 'off'}, from the next answer")

    def _save(self, name: str) -> None:
        if not name:
            raise UsageError("/save needs a file name", "for example /save talk.md")
        messages = self._session.messages
        if name.endswith(".json"):
            content = json.dumps({"schema": 1, "messages": [asdict(m) for m in messages]}, ensure_ascii=False, indent=1)
        else:
            content = "\n\n".join(f"**{m.role}**\n\n{m.content}" for m in messages)
        try:
            Path(name).expanduser().write_text(content + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{name} cannot be written: {error.strerror}", "give another file name") from error
        self._note(f"{len(messages)} messages written to {name}")

    def _note(self, text: str) -> None:
        print(dim(text, self._notes), file=self._notes, flush=True)
