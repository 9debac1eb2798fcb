"""A cluster as a user makes it: init, pair, and then certificates only. Real processes on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.conftest import error_of
from tests.coordinator.coord_commands.conftest import BUDGET, RunCoord
from tests.node.processes import NodeProcess, clean_environment


@contextmanager
def waiting_to_pair(home: Path, name: str) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """`streamoe-node pair`, and what it shows first."""
    command = [sys.executable, "-m", "streamoe_node", "pair", "--name", name, "--host", "127.0.0.1", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=clean_environment(home)) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline()), process
        finally:
            process.kill()


def environment(home: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(home / "config"), "XDG_CACHE_HOME": str(home / "cache")}


def test_init_is_done_once(run_coord: RunCoord, tmp_path: Path) -> None:
    env = environment(tmp_path)
    made = json.loads(run_coord("init", "--json", env=env).stdout)
    folder = Path(made["folder"])
    assert folder.is_relative_to(tmp_path) and len(made["cluster"]) == 16
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    again = run_coord("init", "--json", env=env)
    assert again.returncode == 2 and "--force" in error_of(again)["next_step"]
    other = json.loads(run_coord("init", "--force", "--json", env=env).stdout)
    assert other["cluster"] != made["cluster"]


def test_pairing_needs_a_cluster_and_a_code(run_coord: RunCoord, tmp_path: Path) -> None:
    env = environment(tmp_path)
    done = run_coord("pair", "127.0.0.1:1", "--code", "ABCD-EFGH", "--json", env=env)
    assert "streamoe-coord init" in error_of(done)["next_step"]
    run_coord("init", env=env)
    assert run_coord("pair", "127.0.0.1:1", "--json", env=env).returncode == 2
    done = run_coord("pair", "127.0.0.1:1", "--code", "ABCD-EFGH", "--json", env=env)
    assert done.returncode == 4 and error_of(done)["code"] == "NodeUnreachable"
    done = run_coord("pair", "127.0.0.1:1", "--code", "nonsense!", "--json", env=env)
    assert error_of(done)["code"] == "PairingFailed"


@pytest.mark.slow
def test_a_cluster_with_certificates(run_coord: RunCoord, embedded_folder: Path, tmp_path: Path) -> None:
    ours, stranger, home = environment(tmp_path / "ours"), environment(tmp_path / "stranger"), tmp_path / "nodes"
    for env in (ours, stranger):
        run_coord("init", env=env)
    for name in ("first", "second"):
        with waiting_to_pair(home, name) as (shown, process):
            wrong = run_coord("pair", shown["addresses"][0], "--code", "0000-0000", "--json", env=ours)
            assert error_of(wrong)["code"] == "PairingFailed" and "2 tries left" in error_of(wrong)["message"]
            done = run_coord("pair", shown["addresses"][0], "--code", shown["code"], "--json", env=ours)
            assert done.returncode == 0, done.stdout
            assert process.wait(30) == 0
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["node_id"] == json.loads(done.stdout)["node_id"]
    options = ["--budget", BUDGET, "--ctx", 512, "--host", "127.0.0.1"]
    with (
        NodeProcess(embedded_folder, home, "--layers", "0-7", "--name", "first", *options) as first,
        NodeProcess(embedded_folder, home, "--layers", "8-15", "--name", "second", *options) as second,
    ):
        for node in (first, second):
            node.event("ready")
        asked = ["chat", "--node", first.address, "--node", second.address, "--max-tokens", 4, "--prompt", "Hi."]
        said = run_coord(*asked, "--json", env=ours)
        assert said.returncode == 0, said.stderr
        assert len(json.loads(said.stdout)["token_ids"]) == 4
        # Neither plain speech nor another cluster's certificate opens it.
        for env in (environment(tmp_path / "nobody"), stranger):
            done = run_coord(*asked, "--wait", 1, "--json", env=env)
            assert done.returncode == 4, done.stdout
            assert error_of(done)["code"] == "NodeUnreachable"


@pytest.mark.slow
def test_a_node_is_not_open_to_a_network_by_accident(embedded_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamoe_node", "--model", str(embedded_folder), "--budget", BUDGET, "--json"]
    for host, insecure in (("0.0.0.0", []), ("0.0.0.0", ["--insecure-lan"]), ("8.8.8.8", ["--insecure-lan"])):
        done = subprocess.run(
            [*command, "--host", host, *insecure],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **clean_environment(tmp_path)},
            check=False,
        )
        assert done.returncode == 2, (host, insecure, done.stdout)
        assert '"ExposureRefused"' in done.stdout
