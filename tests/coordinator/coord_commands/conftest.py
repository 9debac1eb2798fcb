"""`streamoe-coord` as a user runs it, and real nodes on loopback for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.node.processes import NodeProcess

RunCoord = Callable[..., "subprocess.CompletedProcess[str]"]
StartNodes = Callable[..., list[NodeProcess]]
BUDGET = "320MiB"


@pytest.fixture(scope="session")
def run_coord(clean_environment: dict[str, str]) -> RunCoord:
    """A function that runs `streamoe-coord ARGS...`, with `stdin` as its input."""

    def run(*args: object, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streamoe_coordinator.coord_cli", *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment | (env or {}),
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def start_nodes(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNodes]:
    """A function from bands ("0-7", ...) to ready nodes of the embedded model; they end with the module."""
    with ExitStack() as running:

        def start(*bands: str, folder: Path = embedded_folder) -> list[NodeProcess]:
            home = tmp_path_factory.mktemp("nodes")
            options = ["--budget", BUDGET, "--ctx", "512", "--max-sessions", "2"]
            nodes = [
                running.enter_context(NodeProcess(folder, home, "--layers", band, "--name", f"n{band}", *options))
                for band in bands
            ]
            for node in nodes:
                node.event("ready")
            return nodes

        yield start


@pytest.fixture(scope="module")
def two_nodes(start_nodes: StartNodes) -> list[str]:
    """Two nodes that make the model, as --node options."""
    return flags_of(start_nodes("0-7", "8-15"))


def flags_of(nodes: list[NodeProcess]) -> list[str]:
    """--node for each."""
    return [word for node in nodes for word in ("--node", node.address)]
