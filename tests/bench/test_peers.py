"""The comparison with other engines: what is run in which order, and what becomes of a run's output."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bench.peers import engines, forced, rows, run, summary
from bench.peers.ceilings import Ceilings
from bench.peers.loop_device import LoopDeviceFailed, loop_device, read_ahead_kb

from streamoe_engine.sizes import GIB
from tests.cgroup import CgroupRun, unavailable_reason

ROOT = Path(__file__).parents[2]
LIMITS = Ceilings(2.0, 1.0, 20.0, "a test")
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or unavailable_reason() is not None,
    reason="needs Linux, root and a writable memory control group",
)


def finished(stdout: str, returncode: int = 0, *, oom_killed: bool = False, stderr: str = "") -> CgroupRun:
    return CgroupRun(returncode, stdout, stderr, 3 * GIB, GIB, 2 * GIB, GIB, True, oom_killed, 0, GIB)


def output(token_s: list[float], read_bytes: int = 1000) -> str:
    counts = {"read_bytes": read_bytes, "major_faults": 8, "own_cpu_s": 1.0, "others_share": 0.01}
    events = [{"event": "opened", "s": 2.0, "engine": "it 1.0", "note": "mapped"}]
    events += [{"event": "prompt", "tokens": 32, "s": 4.0, **counts}]
    events += [{"event": "token", "s": second, "argmax": at} for at, second in enumerate(token_s)]
    events += [{"event": "decode", "tokens": len(token_s), "s": sum(token_s), **counts}] if token_s else []
    return "".join(json.dumps(event) + "\n" for event in events)


def key(engine: str = "streamoe", mode: str = "decode", repeat: int = 0) -> dict:
    return {"engine": engine, "mode": mode, "cap_bytes": 4 * GIB, "repeat": repeat, "read_ahead_kb": None}


def test_a_decode_run_becomes_a_row() -> None:
    row = rows.make_row(key(), finished(output([1.0, 0.5, 0.25, 0.25])))
    assert (row.status, row.version, row.tokens, row.note) == ("ok", "it 1.0", 4, "mapped")
    assert (row.tok_per_s, row.late_tok_per_s, row.median_ms) == (2.0, 4.0, 375.0)
    assert (row.read_bytes_per_token, row.major_faults_per_token) == (250.0, 2.0)
    assert (row.open_s, row.prompt_s, row.peak_bytes) == (2.0, 4.0, 3 * GIB)
    assert (row.token_ms, row.argmax) == ("1000.0 500.0 250.0 250.0", "0 1 2 3")


def test_a_prefill_run_is_timed_by_its_prompt() -> None:
    row = rows.make_row(key(mode="prefill32"), finished(output([])))
    assert (row.tokens, row.tok_per_s, row.median_ms, row.read_bytes_per_token) == (32, 8.0, None, 1000 / 32)


def test_a_run_that_was_killed_or_failed_says_so() -> None:
    killed = rows.make_row(key(), finished(output([1.0]).split('{"event": "token"')[0], -9, oom_killed=True))
    assert (killed.status, killed.tok_per_s, killed.open_s) == ("killed", None, 2.0)
    failed = rows.make_row(key(), finished("", 1, stderr="Traceback\nValueError: it broke\n"))
    assert (failed.status, failed.note) == ("failed", "ValueError: it broke")
    text = summary.summary([killed, failed], LIMITS)
    assert "no figure: killed, failed" in text


def test_the_summary_has_medians_spread_and_ratios_by_pairs() -> None:
    made = [
        rows.make_row(key(engine, repeat=repeat), finished(output([seconds] * 2, read_bytes)))
        for repeat, (ours, theirs) in enumerate([(0.1, 1.0), (0.125, 0.5), (0.1, 0.8)])
        for engine, seconds, read_bytes in (("streamoe", ours, 400_000), ("llama.cpp", theirs, 800_000))
    ]
    text = summary.summary(made, LIMITS)
    assert "10 tok/s (8 to 10, 3 runs)" in text
    assert "1.25 tok/s (1 to 2, 3 runs)" in text
    assert "8.00 times the speed (pair by pair 4.00 to 10.00), 0.50 times the bytes" in text
    assert "agree on 2 of 2" in text
    assert "measure again" not in text


def test_neighbours_are_told_of() -> None:
    noisy = output([1.0]).replace('"others_share": 0.01', '"others_share": 0.6')
    assert "in 1 of 1 runs others had up to 60%" in summary.summary([rows.make_row(key(), finished(noisy))], LIMITS)


def test_results_are_on_disk_at_once_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.csv"
    file = rows.ResultsFile(path, {"cpu": "fast"})
    file.add(rows.make_row(key(), finished(output([1.0]))))
    lines = path.read_text().splitlines()
    file.close()
    assert lines[0] == "# cpu: fast"
    assert next(csv.DictReader(lines[1:]))["tok_per_s"] == "1"
    with pytest.raises(FileExistsError):
        rows.ResultsFile(path, {})


def test_engines_take_turns_and_only_some_live_under_a_limit() -> None:
    found = [
        engines.llama_cpp(Path("p"), Path("g"), ()),
        engines.streamoe(Path("m"), ("--chunk", "8")),
        engines.mlx_lm(Path("c"), ()),
    ]
    mode = engines.parse_mode("decode", 32, 64)
    order = [(cap, repeat, engine.name) for _, cap, repeat, engine in run.turns(found, [GIB, None], [mode], 2)]
    assert [name for cap, repeat, name in order if cap and repeat == 0] == ["llama.cpp", "streamoe"]
    assert [name for cap, repeat, name in order if cap and repeat == 1] == ["streamoe", "llama.cpp"]
    assert [name for cap, repeat, name in order if not cap and repeat == 1] == ["mlx-lm", "streamoe", "llama.cpp"]
    command = found[1].command(mode, GIB, 5.0)
    assert command[command.index("--budget") + 1] == f"{GIB}B"
    assert command[-2:] == ["--chunk", "8"]


@pytest.mark.parametrize("text", ["decoding", "prefill", "prefill0", "prefill513", "prefill-1"])
def test_a_mode_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        engines.parse_mode(text, 32, 64)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="all together are at most 1024"):
        engines.parse_mode("decode", 32, 1000)
    assert engines.parse_mode("prefill512", 32, 1000).prompt_tokens == 512


def test_all_engines_are_fed_the_same_ids_of_one_seed() -> None:
    ids = forced.token_ids(1000, 96, 7)
    assert np.array_equal(ids[:10], forced.token_ids(1000, 10, 7))
    assert ids.min() >= 0 and ids.max() < 1000 and len(set(ids.tolist())) > 80


def test_streamoe_runs_forced_tokens_in_a_process_of_its_own(tiny_folder: Callable) -> None:
    folder = tiny_folder("qwen3_5_moe")[1]
    command = [sys.executable, "-m", "bench.peers.streamoe_run", str(folder), "--budget", "512MiB"]
    command += ["--prompt-tokens", "40", "--tokens", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    row = rows.make_row(key(), finished(done.stdout))
    assert (row.status, row.tokens, len(row.argmax.split())) == ("ok", 3, 3)
    assert row.version.startswith("streamoe ")
    assert "slots" in row.note


@needs_root
def test_a_loop_device_shows_the_file_with_its_own_read_ahead_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1024**2))
    try:
        with loop_device(path, 64) as device:
            assert device.read_bytes() == path.read_bytes()
            assert read_ahead_kb(device) == 64
            name = device.name
    except LoopDeviceFailed as error:
        pytest.skip(f"no loop device here: {error}")
    assert not Path("/sys/block", name, "loop", "backing_file").exists()


def test_a_file_that_a_loop_device_would_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    with pytest.raises(LoopDeviceFailed, match="truncate -s %4096"), loop_device(path, 64):
        pass


@needs_root
@pytest.mark.slow
@pytest.mark.cgroup
def test_the_driver_measures_streamoe_under_a_cap(tiny_folder: Callable, tmp_path: Path) -> None:
    """Empties the machine's page cache, so it is not part of the default run."""
    folder = tiny_folder("qwen3_5_moe")[1]
    command = [sys.executable, "-m", "bench.peers.run", "--model-folder", str(folder), "--caps", "512MiB"]
    command += ["--modes", "decode,prefill16", "--repeats", "2", "--tokens", "4", "--results", str(tmp_path)]
    done = subprocess.run([*command, "--name", "a"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in (tmp_path / "a.csv").read_text().splitlines() if not line.startswith("#")]
    found = list(csv.DictReader(lines))
    assert [(row["mode"], row["repeat"]) for row in found] == [
        ("decode", "0"),
        ("prefill16", "0"),
        ("decode", "1"),
        ("prefill16", "1"),
    ]
    assert all(row["status"] == "ok" and int(row["peak_bytes"]) <= 512 * 1024**2 for row in found)
    assert found[0]["argmax"] == found[2]["argmax"]
    assert "the likeliest tokens are the same in 2 runs" in done.stdout
