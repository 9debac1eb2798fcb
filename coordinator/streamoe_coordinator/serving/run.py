"""A server process from its parts: the port first, then the model, then answers until a signal.

Owns the order of starting and ending. Refuses to know what is served.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from streamoe_engine.errors import StreamoeError, UsageError

from .scheduler import Scheduler

# Connections that are no answers: the page's files, telemetry, metrics.
OTHER_CONNECTIONS = 32
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Listening:
    """A bound socket; nobody else gets the port while the model is opened."""

    socket: socket.socket
    url: str


def listen(host: str, port: int) -> Listening:
    """Take the port. Raises UsageError when it is taken, or the address is none of this machine's."""
    if not 0 <= port <= _MAX_PORT:
        raise UsageError(f"port {port} is none", f"give one from 1 to {_MAX_PORT}, or 0 for a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"port {port} of {host} cannot be had: {reason}", "give another: --port N (0 takes a free one)"
        ) from error
    named = f"[{host}]" if ":" in host else host
    return Listening(bound, f"http://{named}:{bound.getsockname()[1]}")


class _Server(uvicorn.Server):
    """Tells of the first signal at once: answers get their grace while connections are still served."""

    on_first_signal: Callable[[], None] = staticmethod(lambda: None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: it would raise the signal again at the end, and ending as asked is no failure.
        if self.should_exit:
            self.force_exit = True
        else:
            self.should_exit = True
            self.on_first_signal()


def serve(
    app: Starlette,
    listening: Listening,
    scheduler: Scheduler,
    *,
    max_connections: int,
    grace_s: float,
    when_open: Callable[[], None],
) -> None:
    """Serve until a signal. when_open: called once the model is open. Raises what opening it raised."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max_connections,
        timeout_graceful_shutdown=int(grace_s) + 5,
        ws="none",
    )
    server = _Server(config)

    def begin_to_end() -> None:
        threading.Thread(target=scheduler.close, args=(grace_s,), name="drain", daemon=True).start()

    server.on_first_signal = begin_to_end
    failure: list[StreamoeError] = []

    async def run() -> None:
        opening = asyncio.create_task(_wait_until_open(scheduler, server, when_open, failure))
        await server.serve([listening.socket])
        opening.cancel()

    scheduler.start()
    try:
        asyncio.run(run())
    finally:
        scheduler.close()
        listening.socket.close()
    if failure:
        raise failure[0]


async def _wait_until_open(
    scheduler: Scheduler, server: uvicorn.Server, when_open: Callable[[], None], failure: list[StreamoeError]
) -> None:
    try:
        while not scheduler.wait_until_open(0):
            await asyncio.sleep(0.02)
        when_open()
    except StreamoeError as error:
        failure.append(error)
        server.should_exit = True
