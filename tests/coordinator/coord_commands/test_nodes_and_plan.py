"""`streamoe-coord nodes`, `plan`, `doctor`, and the command line itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.coordinator.conftest import error_of
from tests.coordinator.coord_commands.conftest import RunCoord

COMMANDS = ("chat", "nodes", "plan", "init", "pair", "doctor")


def test_version_and_help(run_coord: RunCoord) -> None:
    assert run_coord("--version").stdout.startswith("streamoe-coord 0.")
    bare = run_coord()
    assert all(name in bare.stdout for name in (*COMMANDS, "snapshot"))


@pytest.mark.slow
def test_every_option_shows_its_variable(run_coord: RunCoord) -> None:
    for command in (*COMMANDS, "snapshot save", "snapshot restore"):
        shown = " ".join(run_coord(*command.split(), "--help", env={"COLUMNS": "400"}).stdout.split("\n"))
        assert "4 node unreachable" in shown, command
        for option in {word for word in shown.split() if word.startswith("--")} - {"--help", "--nothink"}:
            name = option.strip(".,;)").removeprefix("--").upper().replace("-", "_")
            assert f"STREAMOE_{name}]" in shown, (command, option)


def test_nodes_that_make_the_model(run_coord: RunCoord, two_nodes: list[str]) -> None:
    done = run_coord("nodes", *two_nodes, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["complete"] and told["problem"] is None and told["missing_layers"] == told["silent"] == []
    assert [node["name"] for node in told["nodes"]] == ["n0-7", "n8-15"]
    assert told["bands"] == [node["node_id"] for node in told["nodes"]]
    for node in told["nodes"]:
        assert node["state"] == "ready" and sum(row["bytes"] for row in node["plan"]) == node["cap_bytes"]
        (address,) = node["addresses"]
        assert 0 < address["rtt_s"] < 5 and address["bytes_per_s"] > 0


def test_a_silent_node_is_told_and_ends_with_4(run_coord: RunCoord, two_nodes: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    done = run_coord("nodes", *two_nodes[2:], "--node", dead)
    assert done.returncode == 4
    assert "n8-15" in done.stdout and f"{dead} does not answer: Connection refused" in done.stdout
    assert "not complete: layers 0-7 of 0-15 are on no node" in done.stdout


def test_watching(two_nodes: list[str], clean_environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "streamoe_coordinator.coord_cli", "nodes", *two_nodes, "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment) as watching:
        assert watching.stdout is not None
        told = json.loads(watching.stdout.readline())
        deadline_s = time.monotonic() + 20
        while not told["complete"] and time.monotonic() < deadline_s:
            told = json.loads(watching.stdout.readline())
        assert told["complete"]
        os.kill(watching.pid, signal.SIGINT)
        watching.stdout.read()
    assert watching.returncode == 130


@pytest.mark.slow
def test_the_plan_of_two_nodes(run_coord: RunCoord, two_nodes: list[str]) -> None:
    done = run_coord("plan", *two_nodes, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [entry["num_nodes"] for entry in told["predictions"]] == [1, 2]
    assert len(told["advice"]) == 3 and told["assumptions"]
    assert told["canary"]["tokens"] == 256 and len(told["canary"]["digest"]) == 64
    two = told["predictions"][1]
    assert two["fits"] and two["tokens_per_s"] > 0
    assert [band["last_layer"] for band in two["bands"]][-1] == 15
    again = json.loads(run_coord("plan", *two_nodes, "--json").stdout)
    assert again["canary"]["digest"] == told["canary"]["digest"]
    table = run_coord("plan", *two_nodes)
    assert "fastest for one conversation" in table.stdout and "hot tier" in table.stdout


@pytest.mark.slow
def test_the_doctor_tells_the_parts_of_the_network_apart(run_coord: RunCoord, two_nodes: list[str]) -> None:
    done = run_coord("doctor", *two_nodes, "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, done.stdout
    assert "multicast send, lo" in checks and "mDNS" in checks and checks["bands"]["status"] == "ok"
    assert checks[f"TCP {two_nodes[1]}"]["status"] == "ok"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    done = run_coord("doctor", "--node", dead, "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and "nothing listens there" in checks[f"TCP {dead}"]["fix"]


def test_nobody_around_and_no_budget(run_coord: RunCoord) -> None:
    # A fingerprint that no node has: others may run on this machine beside the tests.
    done = run_coord("plan", "--wait", 0, "--json", "--fingerprint", "zz")
    assert error_of(done)["code"] in ("NodeUnreachable", "FingerprintMismatch")
    assert done.returncode in (1, 4)
