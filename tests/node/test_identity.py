"""A node's id stays, and no two running nodes of a machine share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamoe_engine.errors import UsageError
from streamoe_node.identity import known_id, take_identity


def release(held: int) -> None:
    os.close(held)


def test_id_stays_and_boots_differ(tmp_path: Path) -> None:
    first = take_identity(None, tmp_path)
    release(first.held)
    again = take_identity(None, tmp_path)
    release(again.held)
    assert first.node_id == again.node_id == known_id(None, tmp_path)
    assert first.boot_id != again.boot_id and len(first.node_id) == 16
    assert first.name == again.name


def test_second_running_node_takes_the_second_id(tmp_path: Path) -> None:
    first, second = take_identity(None, tmp_path), take_identity(None, tmp_path)
    assert first.node_id != second.node_id and second.name == f"{first.name}-2"
    release(first.held)
    third = take_identity(None, tmp_path)
    assert third.node_id == first.node_id
    release(second.held)
    release(third.held)


def test_name_has_its_own_id_and_runs_once(tmp_path: Path) -> None:
    mini = take_identity("mini", tmp_path)
    assert mini.name == "mini" and mini.node_id != known_id(None, tmp_path)
    with pytest.raises(UsageError, match="named mini is running"):
        take_identity("mini", tmp_path)
    release(mini.held)


def test_id_is_free_again_when_its_process_was_killed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from streamoe_node.identity import take_identity as take; "
    code += "print(take(None, Path(sys.argv[1])).node_id, flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        held = other.stdout.readline().strip()
        mine = take_identity(None, tmp_path)
        assert mine.node_id != held
        release(mine.held)
        other.kill()
    mine = take_identity(None, tmp_path)
    assert mine.node_id == held
    release(mine.held)


def test_file_that_is_broken_is_told_and_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        take_identity(None, tmp_path)
    assert (tmp_path / "nodes.json").read_text() == "{"
