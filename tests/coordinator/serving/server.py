"""A real `streamoe serve` process, and what a test asks of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.waiting import comes_to


class ServerProcess:
    """`streamoe serve ARGS...` on a free port, or another module's `serve`. Use as a context manager."""

    def __init__(self, environment: dict[str, str], *args: object, module: str = "streamoe_coordinator") -> None:
        self._command = [sys.executable, "-m", module, "serve", *map(str, args)]
        self._environment = environment
        self.lines: list[str] = []
        self.url = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [*self._command, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        open_event = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(open_event,), daemon=True)
        self._reader.start()
        if not (open_event.wait(90) and self.url):
            self.stop()
            raise AssertionError("\n".join(self.lines))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _read(self, opened: threading.Event) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("serving "):
                self.url = line.split()[-1]
                opened.set()
        opened.set()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Status and JSON (or text) of a GET."""
        return self._ask(urllib.request.Request(self.url + path, headers=_named(headers)))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Status and JSON (or text) of a POST."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **_named(headers)}
        return self._ask(urllib.request.Request(self.url + path, content, sent))

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, _read_body(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _read_body(error.read())

    def telemetry(self, **headers: str) -> dict[str, Any]:
        """The server's figures now."""
        return self.get("/api/telemetry?once=1", **headers)[1]  # type: ignore[no-any-return]

    def num_asked(self, **headers: str) -> int:
        """Requests that run or wait."""
        asked = self.telemetry(**headers)["requests"]
        return int(asked["running"] + asked["waiting"])

    def num_cancelled(self) -> int:
        """Requests so far whose client left."""
        return int(self.telemetry()["totals"]["cancelled"])

    def wait_idle(self, **headers: str) -> None:
        """Until nothing runs and nothing waits."""
        comes_to(lambda: self.num_asked(**headers), 0)

    @property
    def num_descriptors(self) -> int:
        """Open files and sockets of the process."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _read_body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()
