"""The command line as a user runs it: a real process with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment without STREAMOE_ variables, caches and histories under a new folder."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMOE_")}
    return kept | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "COLUMNS": "120",
    }


@pytest.fixture(scope="session")
def run_streamoe(clean_environment: dict[str, str]) -> Run:
    """A function that runs `streamoe ARGS...`, with `stdin` as its input and `env` added."""

    def run(*args: object, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streamoe_coordinator", *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment | (env or {}),
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def small_folder(tiny_folder: Callable[..., tuple[Path, Path]]) -> Path:
    """A tiny random model, converted: opens in no time, says nothing sensible."""
    return tiny_folder("qwen3_5_moe")[1]
