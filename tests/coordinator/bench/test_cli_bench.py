"""`streamoe bench` and `streamoe tier-sim` as a user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streamoe_engine.errors import MeasurementFailed
from streamoe_engine.trace import read_trace
from tests.coordinator.conftest import Run, error_of

BUDGET = "400MiB"
SHORT = ["--tokens", "3", "--prompt-tokens", "5", "--forced"]


COMMANDS = (["bench", "run"], ["bench", "sweep"], ["bench", "tune"], ["bench", "trace"], ["tier-sim"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_exit_codes_and_variables(run_streamoe: Run, command: list[str]) -> None:
    shown = run_streamoe(*command, "--help", env={"COLUMNS": "300"}).stdout
    assert "3 plan does not fit" in shown
    for option in {word for word in shown.split() if word.startswith("--")} - {"--help"}:
        assert f"STREAMOE_{option[2:].upper().replace('-', '_')}]" in shown, option


def test_a_run_as_lines_and_as_json(run_streamoe: Run, small_folder: Path) -> None:
    shown = run_streamoe("bench", "run", small_folder, "--budget", BUDGET, "--tokens", 3, "--prompt-tokens", 5)
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [
        *("decode", "time", "prompt", "experts", "read", "memory"),
    ]
    value = json.loads(run_streamoe("bench", "run", small_folder, "--budget", BUDGET, *SHORT, "--json").stdout)
    assert (value["schema"], value["tokens"], value["prompt_tokens"]) == (1, 3, 5)
    assert value["tokens_per_s_p10"] <= value["tokens_per_s"] <= value["tokens_per_s_p90"]
    assert 0 < value["peak_bytes"] <= value["budget_bytes"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (["--budget", "1MiB"], 3),
        (["--budget", BUDGET, "--tokens", "0"], 2),
        (["--budget", BUDGET, "--reader-threads", "0"], 2),
        (["--budget", BUDGET, "--ctx", "6"], 1),
        ([], 2),
    ],
)
def test_a_run_that_cannot_be(run_streamoe: Run, small_folder: Path, wrong: list[str], code: int) -> None:
    done = run_streamoe("bench", "run", small_folder, *SHORT, *wrong)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


def test_a_sweep_writes_a_row_and_a_mark_a_cap(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    table, chart = tmp_path / "sweep.csv", tmp_path / "sweep.svg"
    arguments = ["bench", "sweep", small_folder, *SHORT, "--csv", table, "--svg", chart]
    done = run_streamoe(*arguments, "--budgets", f"500MiB,1MiB,{BUDGET}")
    assert done.returncode == 0, done.stderr
    assert "1.00 MiB does not fit: the smallest cap is" in done.stderr
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["budget_bytes"]) for row in rows] == [400 * 1024**2, 500 * 1024**2]
    assert all(row["date"] and row["streamoe"] and row["machine"] for row in rows)
    assert len(ElementTree.parse(chart).getroot().findall("{*}circle")) == 4
    assert "400.00 MiB" in done.stdout


def test_a_sweep_where_nothing_fits(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    done = run_streamoe("bench", "sweep", small_folder, *SHORT, "--budgets", "1MiB", "--csv", table, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"schema": 1, "rows": [], "do_not_fit_bytes": [1024**2]}
    assert not table.exists()


def test_a_sweep_that_fails_says_what_its_run_said(run_streamoe: Run, small_folder: Path) -> None:
    done = run_streamoe("bench", "sweep", small_folder, *SHORT, "--budgets", BUDGET, "--ctx", 6, "--json")
    assert done.returncode == 1
    error = error_of(done)
    assert error["code"] == MeasurementFailed.__name__
    assert "planned context of 6" in error["message"]


def test_tuning_keeps_the_fastest_for_chats_to_come(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    arguments = ["--budget", BUDGET, "--tokens", 1, "--prompt-tokens", 1, "--forced", "--rounds", 1, "--json"]
    done = run_streamoe("bench", "tune", small_folder, *arguments, env=home)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    best = value["trials"][0]
    written = Path(value["config"]).read_text()
    assert f'guess = "{best["guess"]}"' in written
    assert f"reader_threads = {best['reader_threads']}" in written
    assert best["tokens_per_s"] == max(trial["tokens_per_s"] for trial in value["trials"])
    Path(value["config"]).write_text('guess = "previous-token"\nguess_width = 1\n')
    plan = run_streamoe("plan", small_folder, "--budget", BUDGET, "--json", env=home)
    assert json.loads(plan.stdout)["guess_width"] == 1


def test_a_trace_is_recorded_and_replayed(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.json", tmp_path / "trace.npz"
    prompts.write_text('{"chat": ["Hello"], "code": ["def f", "import"]}')
    arguments = ["--budget", BUDGET, "--prompts", prompts, "--max-tokens", 4, "--out", out]
    done = run_streamoe("bench", "trace", small_folder, *arguments)
    assert done.returncode == 0, done.stderr
    trace = read_trace(out)
    first_layer = [step for step in trace.steps if step.layer == trace.layers[0]]
    assert sum(step.is_chunk for step in first_layer) >= 3, "a prompt each"
    assert max(len(step.candidates) for step in trace.steps) == trace.num_experts
    shown = run_streamoe("tier-sim", out, "--slots", "6,8", "--widths", "0,1")
    assert shown.returncode == 0, shown.stderr
    assert "belady" in shown.stdout and "next-use" in shown.stdout
    rows = json.loads(run_streamoe("tier-sim", out, "--slots", "6", "--json").stdout)["rows"]
    assert all(row["reads_to_belady"] >= 1 for row in rows)
    assert rows[0]["policy"] == "belady"


def test_a_trace_needs_prompts(run_streamoe: Run, small_folder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text("[1]")
    out = ["--budget", BUDGET, "--out", tmp_path / "trace.npz"]
    for wrong in ([], ["--prompt", "a", "--prompts", prompts], ["--prompts", prompts], ["--prompts", tmp_path / "no"]):
        done = run_streamoe("bench", "trace", small_folder, *out, *wrong)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr


def test_a_simulation_that_cannot_be(run_streamoe: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no trace")
    assert run_streamoe("tier-sim", tmp_path / "text", "--slots", "8").returncode == 1
    for wrong in (["--slots", "0"], ["--slots", "8", "--widths", "-1"], ["--slots", "8", "--guess", "luck"]):
        assert run_streamoe("tier-sim", tmp_path / "text", *wrong).returncode == 2
