"""Checks of the host judge what they are given, and find this machine in order or say what is not."""

from __future__ import annotations

import resource

import pytest

from streamoe_coordinator.doctor.host import (
    host_checks,
    installed_versions,
    kernels_check,
    mlx_check,
    open_files_check,
    processor_check,
    python_check,
    system_check,
)


def test_this_machine_runs_the_tests_so_nothing_fails() -> None:
    checks = host_checks()
    assert [check.name for check in checks] == ["system", "processor", "python", "mlx", "C kernels", "open files"]
    assert not [check for check in checks if check.status == "fail"]


def test_an_unknown_system_fails() -> None:
    assert system_check("Plan9", "4").status == "fail"
    assert system_check("Darwin", "24.1.0").measured == "Darwin 24.1.0"


@pytest.mark.parametrize(
    ("flags", "machine", "status"),
    [
        ({"avx2", "fma", "avx512f"}, "x86_64", "ok"),
        ({"sse4_2"}, "x86_64", "warn"),
        ({"asimd"}, "aarch64", "ok"),
        (set(), "arm64", "ok"),
    ],
)
def test_a_processor_without_avx2_is_a_warning(flags: set[str], machine: str, status: str) -> None:
    assert processor_check("Some CPU", frozenset(flags), machine).status == status


def test_a_translated_or_old_python_fails() -> None:
    translated = python_check("darwin", "x86_64", (3, 12))
    assert translated.status == "fail" and "Rosetta" in translated.measured and "arm64" in translated.fix
    assert python_check("linux", "x86_64", (3, 10)).status == "fail"
    assert python_check("linux", "x86_64", (3, 11)).status == "ok"
    assert python_check("darwin", "arm64", (3, 13)).status == "ok"


def test_mlx_packages_of_two_versions_fail_where_linux_computes_on_the_cpu() -> None:
    check = mlx_check({"mlx": "0.32.4", "mlx-cpu": "0.31.0"}, "linux")
    assert check.status == "fail" and "mlx-cpu 0.31.0" in check.measured and "--force-reinstall" in check.fix
    assert mlx_check({"mlx": "0.32.4", "mlx-cpu": None}, "linux").status == "fail"
    assert mlx_check({"mlx": "0.32.4", "mlx-cpu": "0.32.4"}, "linux").status == "ok"


def test_versions_of_what_is_not_installed_are_none() -> None:
    assert installed_versions("numpy", "no-such-distribution")["no-such-distribution"] is None


def test_few_open_files_are_a_warning() -> None:
    assert open_files_check(256).status == "warn"
    assert open_files_check(4096).status == "ok"
    assert open_files_check(resource.RLIM_INFINITY).measured == "no limit"


def test_missing_kernels_are_a_warning_that_says_what_is_lost() -> None:
    check = kernels_check("the C kernels were not built")
    assert check.status == "warn"
    assert "MLX" in check.measured
    assert "compiler" in check.fix
