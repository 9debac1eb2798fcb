"""The embedded model: found, converted once, also by two processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from streamoe_engine.manifest import read_manifest
from streamoe_node.models import embedded_checkpoint, embedded_target
from tests.coordinator.conftest import Run


def test_the_embedded_checkpoint_is_there() -> None:
    assert (embedded_checkpoint() / "model.safetensors").is_file()
    assert (embedded_checkpoint() / "tokenizer.json").is_file()


def test_two_first_runs_at_once_convert_once(clean_environment: dict[str, str], tmp_path: Path) -> None:
    environment = clean_environment | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "streamoe_coordinator", "plan", "--json"]
    runs = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert all(json.loads(out)["fits"] for out, _ in outputs)
    assert sorted("converting" in err for _, err in outputs) == [False, True]
    (folder,) = [path for path in (tmp_path / "streamoe" / "models").iterdir() if path.is_dir()]
    assert folder.name == embedded_target().name
    assert read_manifest(folder).num_layers == 16


def test_without_a_model_and_a_cap_the_embedded_one_answers(run_streamoe: Run) -> None:
    done = run_streamoe("chat", "--prompt", "What is the capital of France?", "--max-tokens", 12)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "peak is promised ≤ " in done.stderr
    assert "for 512 experts" in done.stderr


def test_a_cache_that_cannot_be_written_is_an_error_with_a_way_out(run_streamoe: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_streamoe("chat", "--prompt", "hi", env={"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert done.returncode == 1
    assert "cannot be written" in done.stderr and "streamoe convert " in done.stderr
    assert "Traceback" not in done.stderr
