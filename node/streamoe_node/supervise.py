"""A small parent that watches the node's process, and says by which signal it ended.

Owns the child, and passing signals on to it. gRPC, engine and all lie in the child, since gRPC's objects survive no
fork; the parent imports next to nothing, and the child plans for what it costs. Refuses to start the child again: that
is for launchd or systemd, which see the exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

FLAG, VARIABLE = "--supervised", "STREAMOE_SUPERVISED_BY"


def run_child(arguments: Sequence[str]) -> int:
    """Run `streamoe-node` with these arguments and wait for its end; returns the exit code for this process."""
    command = [sys.executable, "-m", "streamoe_node", *(word for word in arguments if word != FLAG)]
    child = subprocess.Popen(command, env={**os.environ, VARIABLE: str(os.getpid())}, start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: _pass_on(child, number))
    code = child.wait()
    if code >= 0:
        return code
    print(f"error: {ending(-code)}\nsee its last lines above; other nodes' sessions go on", file=sys.stderr)
    return 1


def ending(number: int) -> str:
    """The sentence for a signal that ended the node's process."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hints = {
        "SIGKILL": ": the system or somebody killed it, perhaps for memory",
        "SIGSEGV": ": a fault in native code",
        "SIGABRT": ": native code gave up",
        "SIGBUS": ": a fault in native code, or a disk that failed",
    }
    return f"the engine ended by {name}{hints.get(name, '')}"


def supervisor_pid() -> int | None:
    """The parent that watches this process, None where there is none."""
    text = os.environ.get(VARIABLE, "")
    return int(text) if text.isdecimal() and int(text) == os.getppid() else None


def supervisor_bytes() -> int:
    """What the watching parent costs: a row of the plan. 0 where there is none."""
    pid = supervisor_pid()
    if pid is None:
        return 0
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


def _pass_on(child: subprocess.Popen[bytes], number: int) -> None:
    if child.poll() is None:
        child.send_signal(number)
