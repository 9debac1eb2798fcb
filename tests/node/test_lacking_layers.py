"""A node on a folder that has other layers than it is asked for says which ones, before it loads anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamoe_engine.fingerprint import band_files, text_files
from streamoe_engine.manifest import MANIFEST_FILE, read_manifest
from tests.node.processes import clean_environment


@pytest.mark.parametrize("layers", [None, "6-9"])
def test_it_names_the_layers_it_has_and_what_to_do(embedded_folder: Path, tmp_path: Path, layers: str | None):
    manifest, pulled = read_manifest(embedded_folder), tmp_path / "pulled"
    for name in [MANIFEST_FILE, *text_files(manifest), *band_files(manifest, 8, 15)]:
        (pulled / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(embedded_folder / name, pulled / name)
    command = [sys.executable, "-m", "streamoe_node", "--model", str(pulled), "--budget", "400MiB", "--ctx", "256"]
    command += ["--port", "0", "--no-announce", *(["--layers", layers] if layers else [])]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=clean_environment(tmp_path), check=False
    )
    told = ended.stdout + ended.stderr
    first, last = ("6", "7") if layers else ("0", "7")
    assert ended.returncode == 1, told
    assert f"lacks layers {first}-{last}" in told and "it has layers 8-15 of 0-15" in told
    assert "--layers 8-15" in told and f"pull-band HOST:PORT {pulled} --layers {first}-{last}" in told
    assert "LOADING" not in told.upper()
