"""The cap is held against the machine, what is free of it, and the limits set on this process."""

from __future__ import annotations

import json
import sys

import pytest

from streamoe_coordinator.doctor.memory import (
    available_check,
    group_limit_check,
    huge_pages_check,
    memory_checks,
    physical_check,
    swap_check,
    wired_check,
)
from streamoe_engine.footprint import MachineMemory
from streamoe_engine.sizes import GIB, MIB
from tests import cgroup

MACHINE = MachineMemory(total_bytes=16 * GIB, available_bytes=6 * GIB)


@pytest.mark.parametrize(("budget", "status"), [(None, "ok"), (8 * GIB, "ok"), (15 * GIB, "warn"), (17 * GIB, "fail")])
def test_a_cap_above_the_machine_fails_and_near_it_warns(budget: int | None, status: str) -> None:
    check = physical_check(budget, MACHINE)
    assert check.status == status
    assert status == "ok" or "--budget 14.3GiB" in check.fix


def test_a_cap_above_what_is_free_is_a_warning() -> None:
    assert available_check(5 * GIB, MACHINE).status == "ok"
    check = available_check(7 * GIB, MACHINE)
    assert check.status == "warn" and check.fix.endswith("--budget 6GiB")
    assert available_check(GIB, MachineMemory(GIB, 700 * MIB)).fix.endswith("--budget 700MiB")


def test_a_machine_in_swap_is_a_warning() -> None:
    assert swap_check(0, MACHINE).status == "ok"
    assert swap_check(3 * GIB, MACHINE).status == "warn"


def test_a_group_limit_below_the_cap_fails() -> None:
    assert group_limit_check(4 * GIB, None).status == "ok"
    assert group_limit_check(4 * GIB, 4 * GIB).status == "ok"
    assert group_limit_check(None, GIB).status == "ok"
    check = group_limit_check(4 * GIB, 3 * GIB)
    assert check.status == "fail" and "--budget 3GiB" in check.fix


@pytest.mark.parametrize(
    ("text", "status"),
    [("always [madvise] never\n", "ok"), ("[always] madvise never\n", "ok"), ("always madvise [never]\n", "warn")],
)
def test_huge_pages_switched_off_are_a_warning(text: str, status: str) -> None:
    assert huge_pages_check(text).status == status


def test_a_wired_limit_below_the_cap_is_a_warning() -> None:
    assert wired_check(4 * GIB, 0).status == "ok"
    assert wired_check(4 * GIB, 8 * GIB).status == "ok"
    assert wired_check(4 * GIB, 2 * GIB).status == "warn"


def test_all_checks_run_here() -> None:
    checks = memory_checks(64 * MIB)
    assert {check.group for check in checks} == {"memory"}
    assert [check.name for check in checks][:3] == ["physical memory", "available now", "swap in use"]


@pytest.mark.cgroup
def test_a_real_group_limit_is_seen() -> None:
    if reason := cgroup.unavailable_reason():
        pytest.skip(reason)
    program = (
        "import json; from dataclasses import asdict; from streamoe_coordinator.doctor.memory import memory_checks\n"
        "print(json.dumps([asdict(check) for check in memory_checks(1 << 30)]))"
    )
    run = cgroup.run_in_cgroup([sys.executable, "-c", program], 256 * MIB)
    checks = {check["name"]: check for check in json.loads(run.stdout)}
    assert checks["control group limit"]["status"] == "fail"
    assert checks["control group limit"]["measured"] == "256.00 MiB, cap 1.00 GiB"
