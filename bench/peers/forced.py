"""What every engine's child process does alike: forced tokens in, times and counts out, as JSON lines.

Owns the task (which ids, how many), the clock, and the process's own counts by the kernel. Refuses to know engines:
an engine is a function from the next ids to the last one's logits. Needs only NumPy, for it runs in the peers'
environments too.

    {"event": "opened", "s": ..., "engine": "llama.cpp 0.3.36", "note": "..."}
    {"event": "prompt", "tokens": 32, "s": ..., "read_bytes": ..., "major_faults": ..., "others_share": ...}
    {"event": "token", "s": ..., "argmax": ...}           one a decoded token; argmax is taken outside the clock
    {"event": "decode", "tokens": 64, "s": ..., ...}      the sum, with the same counts as "prompt"
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Step = Callable[[NDArray[np.int32]], NDArray[np.float32]]
CTX_TOKENS = 1024
BATCH_TOKENS = 512  # the longest prompt
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine ready to run: its name and version, the vocabulary's size, and step(ids) -> logits (vocab_size,).

    note: what else a reader of the results should know, in a few words.
    """

    engine: str
    vocab_size: int
    step: Step
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Kernel counts up to a moment: seconds, of this process's CPU and of all CPUs' work; bytes read from storage."""

    clock_s: float
    own_cpu_s: float
    machine_cpu_s: float
    read_bytes: int
    major_faults: int

    def spent_since(self, earlier: _Counts) -> dict[str, Any]:
        seconds = self.clock_s - earlier.clock_s
        others_s = (self.machine_cpu_s - earlier.machine_cpu_s) - (self.own_cpu_s - earlier.own_cpu_s)
        return {
            "s": seconds,
            "read_bytes": self.read_bytes - earlier.read_bytes,
            "major_faults": self.major_faults - earlier.major_faults,
            "own_cpu_s": self.own_cpu_s - earlier.own_cpu_s,
            # Of all cores' time: neighbours', and the kernel's on this process's behalf, such as a loop device's.
            "others_share": max(others_s, 0.0) / seconds / (os.cpu_count() or 1),
        }


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options all engines' children have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("model", type=Path)
    made.add_argument("--before-tokens", type=int, default=0, help="given at once, before all others, not timed")
    made.add_argument("--prompt-tokens", type=int, default=32, help="given at once, before the decoded tokens")
    made.add_argument("--tokens", type=int, default=64, help="decoded one by one; 0: the prompt only")
    made.add_argument("--limit-s", type=float, default=300.0, help="decode no further token after so long")
    made.add_argument("--threads", type=int, default=os.cpu_count())
    made.add_argument("--seed", type=int, default=7)
    return made


def run(asked: argparse.Namespace, open_engine: Callable[[argparse.Namespace], Opened]) -> None:
    """Open an engine and drive it through the task. Ends with the process that started this one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    start_s = time.perf_counter()
    opened = open_engine(asked)
    _emit("opened", s=time.perf_counter() - start_s, engine=opened.engine, note=opened.note)
    ids = token_ids(opened.vocab_size, asked.before_tokens + asked.prompt_tokens + asked.tokens, asked.seed)
    if asked.before_tokens:
        opened.step(ids[: asked.before_tokens])
        ids = ids[asked.before_tokens :]
    before = _counts()
    opened.step(ids[: asked.prompt_tokens])
    _emit("prompt", tokens=asked.prompt_tokens, **_counts().spent_since(before))
    if asked.tokens:
        _decode(opened.step, ids[asked.prompt_tokens :], asked.limit_s)


def token_ids(vocab_size: int, count: int, seed: int) -> NDArray[np.int32]:
    """(count,) ids, uniformly random: no repetition of a greedy loop flatters a cache."""
    return np.random.default_rng(seed).integers(0, vocab_size, count).astype(np.int32)


def _decode(step: Step, ids: NDArray[np.int32], limit_s: float) -> None:
    before, num_tokens, seconds = _counts(), 0, 0.0
    while num_tokens < len(ids) and seconds < limit_s:
        start_s = time.perf_counter()
        logits = step(ids[num_tokens : num_tokens + 1])
        token_s = time.perf_counter() - start_s
        _emit("token", s=token_s, argmax=int(logits.argmax()))
        num_tokens, seconds = num_tokens + 1, seconds + token_s
    spent = _counts().spent_since(before)
    _emit("decode", tokens=num_tokens, **{**spent, "s": seconds})


def _counts() -> _Counts:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    # user, nice, system, (idle, iowait,) irq, softirq, steal, in clock ticks
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy_ticks = sum(fields) - fields[3] - fields[4]
    return _Counts(
        clock_s=time.perf_counter(),
        own_cpu_s=usage.ru_utime + usage.ru_stime,
        machine_cpu_s=busy_ticks / os.sysconf("SC_CLK_TCK"),
        read_bytes=int(io["read_bytes"]),
        major_faults=usage.ru_majflt,
    )


def _emit(event: str, **fields: Any) -> None:
    # Flushed at once: a process that the kernel kills leaves what it had done.
    print(json.dumps({"event": event, **fields}), flush=True)
