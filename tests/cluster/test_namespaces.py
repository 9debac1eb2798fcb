"""Finding a paired node by real mDNS over two cables: each address once, cables that come and go, a node that dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamoe_node.identity import known_id
from streamoe_node.security.authority import Authority, Member
from streamoe_node.security.folder import save_credentials
from tests.namespaces import Machine, skip_without_namespaces, two_machines
from tests.node.processes import NodeProcess, clean_environment

pytestmark = pytest.mark.slow
NODE, DESK = "node", "desk"


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """Folders of a node and of a desk that were paired."""
    now = datetime.now(UTC)
    authority = Authority.create("test", now)
    node_config, desk_config = (tmp_path / who / "config" / "streamoe" for who in (NODE, DESK))
    node_id = known_id("mini", node_config)
    save_credentials(node_config / "node" / node_id, authority.issue(Member("node", node_id), now))
    save_credentials(desk_config / "cluster", authority.issue(Member("coordinator", "desk"), now))
    return tmp_path


@contextmanager
def node_on(machine: Machine, homes: Path, folder: Path) -> Iterator[NodeProcess]:
    options = ["--name", "mini", "--budget", "320MiB", "--ctx", 512, "--announce"]
    with NodeProcess(folder, homes / NODE, *options, argv=machine.prefix) as node:
        node.event("ready")
        yield node


def coord(machine: Machine, homes: Path, *args: object) -> subprocess.CompletedProcess[str]:
    command = [*machine.prefix, sys.executable, "-m", "streamoe_coordinator.coord_cli", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, env=clean_environment(homes / DESK), check=False
    )


@contextmanager
def watching(machine: Machine, homes: Path) -> Iterator[Callable[[Callable[[dict[str, Any]], bool]], float]]:
    """`nodes --watch --json`: a function that waits for a line that is as wished, and tells how long it took."""
    command = [*machine.prefix, sys.executable, "-m", "streamoe_coordinator.coord_cli", "nodes", "--watch", "--json"]
    env = clean_environment(homes / DESK)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        stdout = process.stdout
        assert stdout is not None

        def until(is_so: Callable[[dict[str, Any]], bool]) -> float:
            start_s = time.monotonic()
            for line in stdout:
                if is_so(json.loads(line)):
                    return time.monotonic() - start_s
                assert time.monotonic() - start_s < 60, line
            raise AssertionError("it ended")

        try:
            yield until
        finally:
            process.kill()


def places(told: dict[str, Any]) -> set[str]:
    (node,) = told["nodes"]
    return {entry["address"].rpartition(":")[0].strip("[]") for entry in node["addresses"]}


def test_one_node_over_two_cables_by_certificates(homes: Path, embedded_folder: Path) -> None:
    skip_without_namespaces()
    with two_machines(2) as (left, right), node_on(left, homes, embedded_folder):
        done = coord(right, homes, "nodes", "--json")
        told = json.loads(done.stdout)
        assert len(told["nodes"]) == 1 and told["complete"], done.stderr
        found = places(told)
        assert {"10.77.0.1", "10.77.1.1"} <= found
        # Each link-local address by the interface that reaches it, whatever mDNS said.
        local = {place for place in found if place.startswith("fe80:")}
        assert {place.partition("%")[2] for place in local} == {"c0", "c1"} and len(local) == 2
        assert all("why" not in entry for entry in told["nodes"][0]["addresses"])
        said = coord(right, homes, "chat", "--prompt", "Hi.", "--max-tokens", 3, "--json")
        assert said.returncode == 0, said.stderr
        # Who is not of the cluster hears of the node and may not speak to it.
        stranger = coord(right, homes / "stranger", "nodes", "--json")
        assert json.loads(stranger.stdout)["nodes"] == []


def test_cables_come_and_go_and_a_dead_node_is_gone_in_time(homes: Path, embedded_folder: Path) -> None:
    skip_without_namespaces()
    with two_machines(2) as (left, right):
        for cable in ("c0", "c1"):
            right.set_link(cable, "down")
        with node_on(left, homes, embedded_folder) as node, watching(right, homes) as until:
            until(lambda told: not told["nodes"])
            right.set_link("c0", "up")
            # A changed set of interfaces is believed after two looks; then mDNS asks anew.
            assert until(lambda told: len(told["nodes"]) == 1) < 30
            right.set_link("c1", "up")
            assert until(lambda told: "10.77.1.1" in places(told)) < 30
            right.set_link("c0", "down")
            assert until(lambda told: "10.77.0.1" not in places(told)) < 20
            right.set_link("c0", "up")
            assert until(lambda told: "10.77.0.1" in places(told)) < 30
            node.process.kill()
            assert until(lambda told: not told["nodes"]) < 15
