"""The small parent: it passes signals on, and says by which signal the engine ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from streamoe_node.supervise import ending
from tests.node.processes import NodeProcess

FLAGS = ("--budget", "300MiB", "--ctx", "256", "--layers", "0-1", "--supervised")


def engine_of(node: NodeProcess) -> int:
    (child,) = psutil.Process(node.process.pid).children()
    return child.pid


def test_signal_that_ended_the_engine_is_named(embedded_folder: Path, tmp_path: Path) -> None:
    with NodeProcess(embedded_folder, tmp_path, *FLAGS) as node:
        plan = node.event("plan")
        assert "supervising parent" in [item["name"] for item in plan["items"]]
        node.event("ready")
        os.kill(engine_of(node), signal.SIGSEGV)
        assert node.wait() == 1
    assert "the engine ended by SIGSEGV" in node.errors


@pytest.mark.slow
def test_term_is_passed_on_and_a_killed_parent_takes_the_engine_along(embedded_folder: Path, tmp_path: Path) -> None:
    with NodeProcess(embedded_folder, tmp_path, *FLAGS) as node:
        node.event("ready")
        node.process.send_signal(signal.SIGTERM)
        assert node.wait() == 0
    with NodeProcess(embedded_folder, tmp_path, *FLAGS) as node:
        node.event("ready")
        engine = psutil.Process(engine_of(node))
        node.process.kill()
        engine.wait(30)


def test_any_signal_has_a_sentence() -> None:
    assert ending(signal.SIGKILL) == "the engine ended by SIGKILL: the system or somebody killed it, perhaps for memory"
    assert ending(250) == "the engine ended by signal 250"
