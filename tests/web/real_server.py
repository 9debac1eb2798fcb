"""`streamoe serve` with the embedded model, as a user starts it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import comes_to

START_S = 90


@dataclass(frozen=True, slots=True)
class RealServer:
    """A running server. url ends with a slash."""

    url: str

    def get(self, path: str) -> Any:
        """A JSON answer."""
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return json.load(answer)

    def snapshot(self) -> dict[str, Any]:
        """The telemetry of now."""
        return dict(self.get("api/telemetry?once=1"))

    def wait_until_idle(self) -> None:
        """Until no request runs."""
        comes_to(lambda: self.snapshot()["requests"]["running"], 0)


@contextmanager
def running(folder: Path, environment: Mapping[str, str], *flags: str) -> Iterator[RealServer]:
    """A server on a free port, open; its output goes to a file in `folder`."""
    log = folder / "serve.log"
    with log.open("w") as stream:
        command = [sys.executable, "-m", "streamoe_coordinator", "serve", "--port", "0", *flags]
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=dict(environment))
    try:
        yield RealServer(_url(log, process))
    finally:
        process.terminate()
        code = process.wait(timeout=40)
    assert code in (0, -signal.SIGTERM), log.read_text()


def _url(log: Path, process: subprocess.Popen[bytes]) -> str:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and process.poll() is None:
        if match := re.search(r"^serving \S+ at (http://\S+)$", log.read_text(), re.MULTILINE):
            return match[1] + "/"
        time.sleep(0.1)
    raise AssertionError(f"the server did not open: {log.read_text()}")
