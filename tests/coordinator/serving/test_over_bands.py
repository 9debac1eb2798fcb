"""The same server over two node processes: the same answers as over one band, alone and together."""

from __future__ import annotations

import concurrent.futures
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess
from tests.waiting import comes_to, eventually

pytestmark = pytest.mark.slow
PROMPTS = [f"Name {number} colours." for number in range(4)]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Node processes and where they answer."""

    addresses: list[str]
    processes: list[subprocess.Popen[bytes]]

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait(10)


@pytest.fixture
def nodes(clean_environment: dict[str, str], embedded_folder: Path, tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes that hold half of the model each."""
    processes, logs = [], []
    try:
        for layers in ("0-7", "8-15"):
            logs.append(tmp_path / f"node-{layers}.log")
            command = [sys.executable, "-m", "streamoe_node", "--model", str(embedded_folder), "--layers", layers]
            command += ["--budget", "400MiB", "--ctx", "512", "--port", "0", "--no-announce"]
            with logs[-1].open("wb") as out:
                processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=clean_environment))
        yield Nodes([_address(log) for log in logs], processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait(20)


def _address(log: Path) -> str:
    ready = eventually(lambda: [line for line in log.read_text().splitlines() if "READY" in line])
    return next(word for word in ready[0].split() if word.startswith("127.0.0.1:"))


def test_two_nodes_answer_as_one_band(
    clean_environment: dict[str, str], nodes: Nodes, server: ServerProcess, embedded_folder: Path
) -> None:
    args = [part for address in nodes.addresses for part in ("--node", address)]
    args += ["--model", str(embedded_folder), "--alias", MODEL]
    with ServerProcess(clean_environment, *args, module="streamoe_coordinator.coord_cli") as over_nodes:

        def ask(where: ServerProcess, prompt: str) -> tuple[str, Any]:
            body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 16}
            status, answer = where.post("/v1/chat/completions", body)
            assert status == 200, answer
            return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

        expected = [ask(server, prompt) for prompt in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda prompt: ask(over_nodes, prompt), PROMPTS * 2))
        assert together == expected * 2
        told = over_nodes.telemetry()
        assert [(band["first_layer"], band["last_layer"]) for band in told["bands"]] == [(0, 7), (8, 15)]
        assert all(sum(i["bytes"] for i in b["plan"]["items"]) == b["budget_bytes"] for b in told["bands"])
        assert all(band["state"] == "up" and 0 < band["rtt_ms"] < 1000 for band in told["bands"])
        metrics = over_nodes.get("/metrics")[1]
        assert len(re.findall(r"^streamoe_band_up\{.*\} 1\.0$", metrics, re.MULTILINE)) == 2
        assert len(re.findall(r"^streamoe_hop_seconds\{.*\} 0\.\d+", metrics, re.MULTILINE)) == 2
        assert over_nodes.get("/ready")[0] == 200
        nodes.kill(1)
        comes_to(lambda: [band["state"] for band in over_nodes.telemetry()["bands"]], ["up", "suspect"])
        assert over_nodes.get("/ready")[0] == 503
        assert re.search(
            r'^streamoe_band_up\{first="8",last="15".*\} 0\.0$', over_nodes.get("/metrics")[1], re.MULTILINE
        )
        assert over_nodes.stop() == 0
