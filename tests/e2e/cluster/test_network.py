"""Machines on a network that find each other by Bonjour: tokens as from one process, plainly and with certificates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.conftest import Alone
from tests.e2e.cluster.lan import Lan, Machine, unavailable_reason
from tests.e2e.cluster.machines import LONG, Cluster, chat_over
from tests.node.processes import clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or ""),
]
BUDGET = ("--budget", "350MiB", "--announce")
PLAIN = "--insecure-lan"


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan() as network:
        yield network


def at(machine: Machine) -> tuple[object, ...]:
    return ("--host", machine.address, "--port", 7650)


def run_at(machine: Machine, module: str, *words: object, home: Path) -> dict[str, object]:
    done = subprocess.run(
        [*machine.argv, sys.executable, "-m", module, *map(str, words), "--json"],
        capture_output=True, text=True, timeout=60, check=False, env=clean_environment(home), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    value: dict[str, object] = json.loads(done.stdout)
    return value


@pytest.mark.parametrize("bands", [("0-7", "8-15"), ("0-4", "5-10", "11-15")], ids="+".join)
def test_found_by_bonjour(cluster: Cluster, alone: Alone, tmp_path: Path, lan: Lan, bands: tuple[str, ...]) -> None:
    here, *others = [lan.machine() for _ in range(len(bands) + 1)]
    nodes = [
        cluster.start(band, f"n{band}", *BUDGET, *at(machine), PLAIN, argv=machine.argv)
        for band, machine in zip(bands, others, strict=True)
    ]
    for node, machine in zip(nodes, others, strict=True):
        node.event("ready")
        assert node.address == f"{machine.address}:7650"
    shown = run_at(here, "streamoe_coordinator.coord_cli", "nodes", PLAIN, home=tmp_path / "coord")
    assert [entry["name"] for entry in shown["nodes"]] == [f"n{band}" for band in bands]
    with chat_over([], tmp_path / "coord", LONG, 12, PLAIN, argv=here.argv) as asking:
        assert asking.tokens() == alone(LONG, 12)
    # Plain speech on a network is nobody's default.
    with chat_over([], tmp_path / "coord", LONG, 12, "--wait", 1, argv=here.argv) as asking:
        assert "error" in asking.answer() and asking.process.returncode != 0


def test_paired_machines_need_no_flag(cluster: Cluster, alone: Alone, tmp_path: Path, lan: Lan) -> None:
    here, *others = [lan.machine() for _ in range(3)]
    home = tmp_path / "coord"
    run_at(here, "streamoe_coordinator.coord_cli", "init", home=home)
    bands = ("0-7", "8-15")
    for band, machine in zip(bands, others, strict=True):
        command = [*machine.argv, sys.executable, "-m", "streamoe_node", "pair", "--name", f"n{band}", "--json"]
        pipe, env = subprocess.PIPE, clean_environment(tmp_path / f"n{band}")
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as waiting:
            assert waiting.stdout is not None
            try:
                shown = json.loads(waiting.stdout.readline())
                address = next(address for address in shown["addresses"] if address.startswith(machine.address))
                run_at(here, "streamoe_coordinator.coord_cli", "pair", address, "--code", shown["code"], home=home)
                assert waiting.wait(30) == 0
            finally:
                waiting.kill()
    nodes = [
        cluster.start(band, f"n{band}", *BUDGET, argv=machine.argv) for band, machine in zip(bands, others, strict=True)
    ]
    for node in nodes:
        node.event("ready")
    with chat_over([], home, LONG, 12, argv=here.argv) as asking:
        answer = asking.answer()
        assert answer.get("token_ids") == alone(LONG, 12), (answer, asking.stderr)
    # A coordinator that is not of the cluster hears them, and is let in nowhere.
    with chat_over([], tmp_path / "stranger", LONG, 12, "--wait", 2, argv=here.argv) as asking:
        assert asking.answer()["error"]["code"] == "NodeUnreachable"
