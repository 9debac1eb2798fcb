"""Breaking a node in the middle of an answer, and what came of it: one row a trial.

Owns the faults, the moments they come at, and the figures. A moment is a number of tokens that the node itself says it
has run, never a time. Refuses to know which outcome is right.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.e2e.cluster.machines import LONG, SHORT, Asking

Moment = Literal["prefill", "first token", "middle token", "last token"]
MOMENTS: tuple[Moment, ...] = ("prefill", "first token", "middle token", "last token")
NUM_TOKENS = 24
LONGEST_S = 150.0
_WATCH_S = 60.0
# What a coordinator says of a band, first to last.
SILENT, LOST, BACK = "has been silent for", "is lost", "is back after"


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault. position: tokens the node had run. noticed_s, lost_s and back_s: from the fault to the coordinator's
    word, None where it said none. tokens: what was answered, None: error tells why not. way: how the band came back.
    """

    fault: str
    moment: Moment
    band: int
    position: int
    noticed_s: float | None
    lost_s: float | None
    back_s: float | None
    total_s: float
    tokens: tuple[int, ...] | None
    error: str
    way: str


def prompt_of(moment: Moment) -> str:
    """A prompt of several steps, to be disturbed in; else a short one."""
    return LONG if moment == "prefill" else SHORT


def tokens_before(moment: Moment, num_prompt: int) -> int:
    """What the node must have run when the fault comes. The last token is chosen after num_prompt + NUM_TOKENS - 1;
    two less, for the answer goes on while the fault is on its way."""
    decoded = {"first token": 0, "middle token": NUM_TOKENS // 2, "last token": NUM_TOKENS - 3}
    return 1 if moment == "prefill" else num_prompt + decoded[moment]


@contextmanager
def watching(address: str, num_tokens: int, argv: Sequence[str]) -> Iterator[Callable[[], int]]:
    """A function that returns when the conversation to come has num_tokens at that node: how many it has."""
    command = [*argv, sys.executable, "-m", "tests.e2e.cluster.watching", address, str(num_tokens)]
    top = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=top) as watcher:
        timer = threading.Timer(_WATCH_S, watcher.kill)
        timer.start()
        try:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == "watching\n"
            yield lambda: int(watcher.stdout.readline())  # type: ignore[union-attr]
        finally:
            timer.cancel()
            watcher.kill()


def disturb(
    fault: str, moment: Moment, band: int, ask: Callable[[], Asking], reached: Callable[[], int],
    strike: Callable[[], None], mend: Callable[[Asking], None],
) -> Trial:  # fmt: skip
    """Ask, strike when the moment is reached, mend, and see. mend may wait, as long as the answer is not there."""
    with ask() as asking:
        position = reached()
        start_s = time.monotonic()
        strike()
        mend(asking)
        answer = asking.answer(LONGEST_S + 30)
        total_s = time.monotonic() - start_s
        told = {word: asking.said_s(word) for word in (SILENT, LOST, BACK)}
        since = {word: None if at_s is None else at_s - start_s for word, at_s in told.items()}
        noticed = [at_s for at_s in since.values() if at_s is not None]
        return Trial(
            fault,
            moment,
            band,
            position,
            min(noticed, default=None),
            since[LOST],
            since[BACK],
            total_s,
            tuple(answer["token_ids"]) if "token_ids" in answer else None,
            answer.get("error", {}).get("code", ""),
            next((line for _, line in asking.lines if BACK in line), "").partition(" (")[2].rstrip(")"),
        )


def while_open(asking: Asking, seconds: float) -> None:
    """Wait, but no longer than the answer takes."""
    deadline_s = time.monotonic() + seconds
    while not asking.is_over and time.monotonic() < deadline_s:
        time.sleep(0.05)


def freeze(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)


def thaw(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)
