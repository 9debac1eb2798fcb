"""`--head`: a word that is checked, a row that is shown, and an answer that stays the same."""

from __future__ import annotations

import json
from pathlib import Path

from tests.coordinator.conftest import Run


def test_a_streamed_head_is_a_row_of_the_plan(run_streamoe: Run, small_folder: Path) -> None:
    rows = {}
    for head in ("resident", "streamed"):
        done = run_streamoe("plan", small_folder, "--budget", "400MiB", "--head", head, "--json")
        rows[head] = {item["name"]: item["why"] for item in json.loads(done.stdout)["items"]}
    assert "output head" not in rows["resident"]
    assert "are read for each token" in rows["streamed"]["output head"]


def test_the_answer_is_the_same(run_streamoe: Run, small_folder: Path) -> None:
    answers = []
    for head in ("resident", "streamed"):
        flags = ["--budget", "400MiB", "--head", head, "--prompt", "hi", "--temperature", "0", "--max-tokens", "6"]
        answers.append(json.loads(run_streamoe("chat", small_folder, *flags, "--json").stdout))
    assert answers[0]["token_ids"] == answers[1]["token_ids"]
    experts = sum(layer["bytes_read"] for layer in answers[1]["layers"])
    assert answers[1]["read_bytes"] > experts
    assert answers[0]["read_bytes"] == sum(layer["bytes_read"] for layer in answers[0]["layers"])


def test_an_unknown_place_is_a_usage_error(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("plan", small_folder, "--budget", "400MiB", "--head", "elsewhere")
    assert done.returncode == 2
    assert "--head elsewhere is not known" in done.stderr and "auto, resident, streamed" in done.stderr
