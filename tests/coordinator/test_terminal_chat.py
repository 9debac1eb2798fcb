"""The chat at a real terminal: a pseudo-terminal with a person's keys, and the signals that Ctrl-C becomes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CTRL_C, CTRL_D, ENTER, ESCAPE = "\x03", "\x04", "\r", "\x1b"
WAIT_S = 30


class Terminal:
    """One end of a pseudo-terminal whose other end a program runs in."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self.program = subprocess.Popen(
            [sys.executable, "-c", _AS_FOREGROUND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the pattern appears after what earlier waits have seen."""
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            if found := re.compile(pattern).search(self.shown, self._seen):
                self._seen = found.end()
                return found
            if not self._read(0.2) and self.program.poll() is not None:
                break
        raise AssertionError(f"{pattern!r} did not appear:\n{self.shown[self._seen :]}")

    def wait_briefly(self) -> None:
        """Read what there is."""
        self._read(0.1)

    def exit_code(self) -> int:
        end_s = time.monotonic() + WAIT_S
        while self.program.poll() is None and time.monotonic() < end_s:
            self._read(0.1)
        return self.program.wait(1)

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self._ours)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the program has ended
            return False
        if b"\x1b[6n" in data:  # the editor asks where the cursor is
            self.type("\x1b[1;1R")
        self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        return bool(data)


# The terminal must be the program's controlling one, or Ctrl-C would be no signal.
_AS_FOREGROUND = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "streamoe_coordinator", *sys.argv[1:]])
"""


@pytest.fixture
def open_chat(clean_environment: dict[str, str], embedded_folder: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        arguments = ("chat", str(embedded_folder), "--budget", "256MiB", *arguments)
        opened.append(Terminal(list(arguments), clean_environment))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_a_chat_with_a_stopped_answer_and_commands(open_chat: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = open_chat()
    terminal.wait_for(r"sum +256\.00 MiB")
    terminal.wait_for(r"peak is promised ≤ 256\.00 MiB")
    terminal.wait_for("Ctrl-D ends[^>]*>")
    terminal.type("Tell me a long story about a cat." + ENTER)
    terminal.wait_for("cat .* cat")  # the question's echo, and the answer's first words
    terminal.type(CTRL_C)
    terminal.wait_for(r"tok · .*peak \d+/256 MiB · stopped")
    terminal.type("What is 2 plus 2?" + ENTER)
    terminal.wait_for(r"tok · .*peak \d+/256 MiB")
    terminal.type("/stats" + ENTER)
    terminal.wait_for(r"\d+ tokens run")
    terminal.type(f"/save {tmp_path}/talk.json" + ENTER)
    terminal.wait_for("4 messages written")
    terminal.type("half a line" + CTRL_C + "/quit" + ENTER)
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.shown


def test_a_second_interrupt_ends_the_program(open_chat: Callable[..., Terminal]) -> None:
    # A prompt of many tokens in one chunk: the first Ctrl-C takes effect only after it, the second at once.
    # Through MLX, where that chunk takes long enough to meet.
    terminal = open_chat("--chunk", "512", "--ctx", "1024", "--budget", "1GiB", "--backend", "mlx")
    terminal.wait_for("Ctrl-D ends[^>]*>")
    terminal.type("7" * 400 + "end" + ENTER)
    terminal.wait_for("end")
    # On a busy machine a key may come before the answer has begun, when it does nothing: so more than two.
    for _ in range(15):  # 9 s: less than the chunk takes
        if terminal.program.poll() is not None:
            break
        terminal.type(CTRL_C)
        time.sleep(0.5)
        terminal.wait_briefly()
    assert terminal.exit_code() == 130
    assert "Traceback" not in terminal.shown


def test_several_lines_and_the_end_of_input(open_chat: Callable[..., Terminal]) -> None:
    terminal = open_chat("--max-tokens", "3")
    terminal.wait_for("Ctrl-D ends[^>]*>")
    terminal.type('"""' + ENTER + "Say" + ENTER + 'hello."""' + ENTER)
    terminal.wait_for("3 tok · ")
    terminal.type("Say" + ESCAPE + ENTER + "hello." + ENTER)
    terminal.wait_for("3 tok · ")
    terminal.type("/ctx" + ENTER)
    terminal.wait_for("of 4096 tokens used[^>]*>")
    terminal.type(CTRL_D)
    assert terminal.exit_code() == 0


def test_history_is_kept_for_its_owner_only(
    open_chat: Callable[..., Terminal], clean_environment: dict[str, str]
) -> None:
    terminal = open_chat("--max-tokens", "2")
    terminal.wait_for("Ctrl-D ends[^>]*>")
    terminal.type("remember this" + ENTER)
    terminal.wait_for("2 tok · [^>]*>")
    terminal.type(CTRL_D)
    assert terminal.exit_code() == 0
    (history,) = Path(clean_environment["XDG_STATE_HOME"]).rglob("history")
    assert "remember this" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_an_interrupted_answer_to_a_prompt_shows_what_it_had(open_chat: Callable[..., Terminal]) -> None:
    terminal = open_chat("--prompt", "Tell me a long story about a cat.")
    terminal.wait_for("cat")
    terminal.type(CTRL_C)
    terminal.wait_for(r"tok · .*stopped")
    assert terminal.exit_code() == 130
