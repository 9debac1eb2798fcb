"""The generated code is that of the .proto files; they lint, and break no peer of the baseline."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTO = Path(__file__).parents[2] / "proto"
BIN = Path(sys.executable).parent
HAS_TOOLS = importlib.util.find_spec("grpc_tools") is not None and (BIN / "protoc-gen-mypy").exists()
HAS_BUF = (BIN / "buf").exists()


@pytest.mark.skipif(not HAS_TOOLS, reason="grpcio-tools or mypy-protobuf is not installed")
def test_generated_code_is_what_the_tools_write(tmp_path: Path) -> None:
    subprocess.run(
        [PROTO / "generate.sh", tmp_path],
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "PYTHON": sys.executable},
    )
    fresh = {path.name: path.read_text() for path in (tmp_path / "streamoe_proto" / "v1").iterdir()}
    committed = {path.name: path.read_text() for path in (PROTO / "streamoe_proto" / "v1").glob("*_pb2*.py*")}
    assert fresh.keys() == committed.keys() and len(fresh) == 20
    assert [name for name in fresh if fresh[name] != committed[name]] == []


def buf(*arguments: str, folder: Path = PROTO) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "buf", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(not HAS_BUF, reason="buf-bin is not installed")
def test_buf_lint_is_clean() -> None:
    done = buf("lint")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not HAS_BUF, reason="buf-bin is not installed")
def test_buf_breaking_finds_nothing_and_would_find_a_renumbered_field(tmp_path: Path) -> None:
    done = buf("breaking", "--against", "baseline.binpb")
    assert (done.returncode, done.stdout) == (0, "")
    changed = tmp_path / "proto"
    shutil.copytree(PROTO, changed, ignore=shutil.ignore_patterns("*.py*", "__pycache__"))
    band = changed / "streamoe_proto" / "v1" / "band.proto"
    band.write_text(band.read_text().replace("uint64 position = 2;\n  Want", "uint64 position = 9;\n  Want"))
    done = buf("breaking", "--against", "baseline.binpb", folder=changed)
    assert done.returncode != 0 and "position" in done.stdout
