"""All checks together, for no model, a whole one and a broken one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streamoe_coordinator.doctor import Check, run_checks
from streamoe_coordinator.doctor.check import graded
from streamoe_coordinator.doctor.disk_probe import RECORD_BYTES, ReadSpeed
from streamoe_engine.manifest import expert_file
from streamoe_engine.sizes import MIB


def probe() -> list[ReadSpeed]:
    # The real one takes two seconds and is tried once, below.
    return [ReadSpeed("huge", 1, RECORD_BYTES, RECORD_BYTES, 0.0006, True)]


def groups(checks: list[Check]) -> list[str]:
    return list(dict.fromkeys(check.group for check in checks))


def test_without_a_model_every_other_group_is_checked() -> None:
    checks = run_checks(None, 64 * MIB)
    assert groups(checks) == ["host", "memory", "disk", "arithmetic"]
    assert all((check.fix == "") == (check.status == "ok") and check.measured for check in checks)


def test_a_model_is_checked_and_hashes_only_when_asked(tiny_folder: Callable[..., tuple[Path, Path]]) -> None:
    folder = tiny_folder("olmoe")[1]
    for verify, names in ((False, ["manifest", "files"]), (True, ["manifest", "files", "hashes"])):
        model = [check for check in run_checks(folder, None, verify, probe) if check.group == "model"]
        assert [(check.name, check.status) for check in model] == [(name, "ok") for name in names]


def test_a_broken_model_fails_alone(tiny_folder: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("olmoe")[1], tmp_path / "model"))
    (folder / expert_file(0)).unlink()
    failed = [
        (check.group, check.name) for check in run_checks(folder, 64 * MIB, True, probe) if check.status == "fail"
    ]
    assert failed == [("model", "files")]


def test_a_folder_that_is_no_model_fails_alone(tmp_path: Path) -> None:
    failed = [
        (check.group, check.name) for check in run_checks(tmp_path, 64 * MIB, probe=probe) if check.status == "fail"
    ]
    assert failed == [("model", "manifest")]


def test_a_fix_belongs_to_what_is_not_well() -> None:
    assert graded("host", "x", "1", fail="do this", warn="or that").status == "fail"
    assert graded("host", "x", "1", warn="do that") == Check("host", "x", "warn", "1", "do that")
    with pytest.raises(AssertionError):
        Check("host", "x", "ok", "1", "nothing to do")
    with pytest.raises(AssertionError):
        Check("host", "x", "fail", "1")
