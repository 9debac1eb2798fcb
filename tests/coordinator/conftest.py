"""The command line as a user runs it: a real process with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamoe_coordinator.text import Text, load_text
from tests.coordinator.fake_band import VOCAB, FakeBand
from tests.tiny_tokenizer import write_tokenizer

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment without STREAMOE_ variables, caches and histories under a new folder."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMOE_")}
    return kept | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
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


def error_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The error object on stdout, alone there."""
    value = json.loads(done.stdout)
    assert value["schema"] == 1
    assert {"code", "message", "next_step"} <= value["error"].keys()
    error: dict[str, Any] = value["error"]
    return error


@pytest.fixture(scope="session")
def small_folder(tiny_folder: Callable[..., tuple[Path, Path]]) -> Path:
    """A tiny random model, converted: opens in no time, says nothing sensible."""
    return tiny_folder("qwen3_5_moe")[1]


@pytest.fixture
def text(tmp_path: Path) -> Text:
    """A byte-level tokenizer and a chat template."""
    write_tokenizer(tmp_path, VOCAB)
    return load_text(tmp_path)[0]


@pytest.fixture
def band(text: Text) -> FakeBand:
    """A fake band whose answers end now and then."""
    (end_id,) = text.tokenizer.eos_ids
    return FakeBand(end_id)
