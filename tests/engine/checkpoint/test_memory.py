"""What a conversion costs, by the kernel's own count: memory below 0.3 GiB, page cache included."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from streamoe_engine.checkpoint import verify_folder
from streamoe_engine.sizes import GIB, MIB
from tests.cgroup import run_in_cgroup, unavailable_reason
from tests.engine.checkpoint.test_layout import full_size_qwen
from tests.large_checkpoints import write_large_checkpoint

BOUND_BYTES = 3 * GIB // 10


@pytest.mark.slow
@pytest.mark.cgroup
@pytest.mark.parametrize("form", ["q4", "raw"])
def test_peak_memory_of_a_large_conversion(form: str, tmp_path: Path) -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)
    # The raw form's embedding alone, 0.54 GB, is above the bound; so are the scales and biases of a layer's experts.
    values = {"num_experts": 256, "vocab_size": 65_536} if form == "q4" else {"num_experts": 64, "vocab_size": 131_072}
    size = write_large_checkpoint(tmp_path / "source", full_size_qwen(**values), form)
    assert size > GIB
    command = [sys.executable, "-m", "streamoe_engine.checkpoint", str(tmp_path / "source"), str(tmp_path / "model")]
    run = run_in_cgroup(command, limit_bytes=2 * GIB, timeout_s=240)
    assert run.returncode == 0, run.stderr
    assert run.peak_bytes < BOUND_BYTES, f"{run.peak_bytes / MIB:.0f} MiB"
    verify_folder(tmp_path / "model")
    if form == "raw":
        assert_head_is_quantised_as_a_whole(tmp_path)
    shutil.rmtree(tmp_path)


def assert_head_is_quantised_as_a_whole(root: Path) -> None:
    """Its scales and biases, 17 MB, are computed again rather than kept."""
    head = mx.load(str(root / "source" / "model.safetensors"))["lm_head.weight"]
    tail = mx.load(str(root / "model" / "resident" / "tail.safetensors"))
    for leaf, wanted in zip(("weight", "scales", "biases"), mx.quantize(head, 64, 4), strict=True):
        assert mx.array_equal(tail[f"language_model.lm_head.{leaf}"], wanted).item(), leaf
