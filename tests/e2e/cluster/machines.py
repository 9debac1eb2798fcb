"""A cluster as a user has it: node processes, each with a home of its own, and coordinators that ask.

Owns how the commands are started and what they said when. Refuses to know what is expected of them.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import grpc

from streamoe_engine.sizes import MIB
from streamoe_proto.channel_options import client_options
from streamoe_proto.v1 import node_pb2, node_pb2_grpc
from tests.node.processes import NodeProcess, clean_environment

CTX = 1024
ANSWER_S = 240.0
_START_BYTES = 2 * MIB  # each start measures anew what Python and its libraries cost
SHORT = "List five animals."
LONG = "Tell me what happens in this story, and why. " + " ".join(
    f"On day {day} the {who} walked {day * 7} miles to the {where}, met a {whom} and gave it {day + 2} apples."
    for day, who, where, whom in [
        (day, who, where, whom)
        for day, (who, where, whom) in enumerate(
            [("farmer", "river", "fox"), ("old baker", "market", "crow"), ("girl", "mountain", "bear")] * 7, start=1
        )
    ]
)


class Asking:
    """One `streamoe-coord chat --json` (or `streamoe chat`), its lines on stderr with the time each came."""

    def __init__(self, command: Sequence[object], home: Path, *, argv: Sequence[str] = ()) -> None:
        self.lines: list[tuple[float, str]] = []
        self.start_s = time.monotonic()
        self.process = subprocess.Popen(
            [*argv, sys.executable, "-m", *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(home),
        )
        self._out = ""
        self._readers = [threading.Thread(target=read) for read in (self._read_out, self._read_lines)]
        for reader in self._readers:
            reader.start()

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def stderr(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def said_s(self, part: str) -> float | None:
        """When a line with this part came first; None: it has not."""
        return next((at_s for at_s, line in list(self.lines) if part in line), None)

    def answer(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The JSON object that it ends with: an answer or an error."""
        self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(10)
        assert self._out, self.stderr
        value: dict[str, Any] = json.loads(self._out)
        return value

    def tokens(self, timeout_s: float = ANSWER_S) -> list[int]:
        """The answer's token ids."""
        value = self.answer(timeout_s)
        assert "token_ids" in value, (value, self.stderr)
        ids: list[int] = value["token_ids"]
        return ids

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_over:
            self.process.kill()
        self.process.wait(10)
        for reader in self._readers:
            reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self._out = self.process.stdout.read()

    def _read_lines(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))


def chat_alone(
    folder: Path, home: Path, budget: str, prompt: str, max_tokens: int, ctx_tokens: int = CTX
) -> dict[str, Any]:
    """What one process says, as its JSON."""
    command = ["streamoe_coordinator", "chat", folder, "--budget", budget, "--ctx", ctx_tokens, "--prompt", prompt]
    with Asking([*command, "--max-tokens", max_tokens, "--temperature", 0, "--json"], home) as asking:
        answer = asking.answer()
    assert "token_ids" in answer, answer
    return answer


def chat_over(
    addresses: Sequence[str], home: Path, prompt: str, max_tokens: int, *options: object, argv: Sequence[str] = ()
) -> Asking:
    """A coordinator over these nodes; over whoever announces itself if none is named."""
    nodes = [word for address in addresses for word in ("--node", address)]
    command = ["streamoe_coordinator.coord_cli", "chat", *nodes, "--prompt", prompt, "--max-tokens", max_tokens]
    return Asking([*command, "--temperature", 0, "--json", *options], home, argv=argv)


class Cluster:
    """Nodes of one model that end with the context. home: below it each node has its own."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self._running = ExitStack()

    def start(self, layers: str, name: str, *options: object, argv: Sequence[str] = ()) -> NodeProcess:
        """A node, not waited for. Its home is its name's: started again, it has the same id."""
        flags = ["--layers", layers, "--name", name, "--ctx", CTX, "--max-sessions", 3]
        return self._running.enter_context(NodeProcess(self.folder, self.home / name, *flags, *options, argv=argv))

    def start_ready(self, bands: Sequence[str], *options: object, names: str = "n") -> list[NodeProcess]:
        nodes = [self.start(band, f"{names}{band}", *options) for band in bands]
        for node in nodes:
            node.event("ready")
        return nodes

    def smallest_budget(self, layers: str, *options: object) -> int:
        """The smallest cap of a band, in bytes; a node says so when it is given too little."""
        flags = ["--layers", layers, "--ctx", CTX, "--max-sessions", 3, *options, "--budget", "1MiB"]
        with NodeProcess(self.folder, self.home / "refused", *flags) as node:
            needed = int(node.event("error")["error"]["needed_bytes"])
            assert node.wait() == 3
        return needed + _START_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        self._running.__exit__(*details)


def addresses_of(nodes: Sequence[NodeProcess]) -> list[str]:
    return [node.address for node in nodes]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that a node can be given, so that it is found there again after a restart."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


Session = tuple[str, int, bool]  # name, position, whether a coordinator is attached


@contextmanager
def sessions_of(address: str) -> Iterator[Callable[[], list[Session]]]:
    """A function that asks a node for its sessions; none when it does not answer."""
    with grpc.insecure_channel(address, options=client_options()) as channel:
        stub = node_pb2_grpc.NodeServiceStub(channel)

        def ask() -> list[Session]:
            try:
                told = stub.ListSessions(node_pb2.ListSessionsRequest(), timeout=2).sessions
            except grpc.RpcError:
                return []
            return [(held.session, held.position, held.is_attached) for held in told]

        yield ask
