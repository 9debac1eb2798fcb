"""The command line on folders: converting, verifying, checking."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.coordinator.conftest import Run, error_of

BUDGET = "400MiB"


def test_a_checkpoint_is_converted_by_the_command_the_refusal_names(
    run_streamoe: Run, tiny_folder: Any, tmp_path: Path
) -> None:
    source, _ = tiny_folder("olmoe")
    refused = run_streamoe("chat", source, "--budget", BUDGET, "--prompt", "hi")
    assert refused.returncode == 2
    assert f"streamoe convert {source} " in refused.stderr
    target = tmp_path / "model"
    done = run_streamoe("convert", source, target, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["family"] == "olmoe"
    again = run_streamoe("convert", source, target)
    assert again.returncode == 2
    assert "error: " in again.stderr
    assert run_streamoe("verify", target).returncode == 0


def test_yes_converts_a_checkpoint_once(run_streamoe: Run, tiny_folder: Any) -> None:
    source, _ = tiny_folder("olmoe")
    args = ["chat", source, "--yes", "--budget", BUDGET, "--prompt", "hi", "--max-tokens", 2, "--json"]
    first, second = run_streamoe(*args), run_streamoe(*args)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "converting" in first.stderr and "converting" not in second.stderr
    assert json.loads(first.stdout)["token_ids"] == json.loads(second.stdout)["token_ids"]


def test_a_checkpoint_that_cannot_be_converted_says_why(run_streamoe: Run, tiny_folder: Any, tmp_path: Path) -> None:
    source, _ = tiny_folder("olmoe")
    broken = shutil.copytree(source, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "model_type": "nosuch"}))
    done = run_streamoe("plan", broken, "--yes", "--budget", BUDGET, "--json")
    assert done.returncode == 1
    assert "nosuch" in error_of(done)["message"]


def test_verify_finds_a_changed_byte(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_folder, tmp_path / "model")
    assert run_streamoe("verify", folder, "--json").returncode == 0
    file = folder / "experts" / "layer-0001.records"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    done = run_streamoe("verify", folder, "--json")
    assert done.returncode == 1
    assert error_of(done)["code"] == "ModelFileCorrupt"


def test_doctor_checks_and_says_so(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("doctor", small_folder, "--budget", BUDGET, "--json")
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    assert done.returncode == (0 if report["ok"] else 1)
    assert {"group", "name", "status", "measured", "fix"} == report["checks"][0].keys()
    assert {"host", "memory", "disk", "model"} <= {check["group"] for check in report["checks"]}


def test_doctor_fails_with_1_on_a_broken_folder(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_folder, tmp_path / "model")
    (folder / "experts" / "layer-0001.records").unlink()
    done = run_streamoe("doctor", folder)
    assert done.returncode == 1
    assert "fail" in done.stdout and "layer-0001" in done.stdout
