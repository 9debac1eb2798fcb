"""A head that is read for every token says the same as one in memory, counts what it reads, and is chosen last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.band import Band, BandOptions
from streamoe_engine.checkpoint import ConvertOptions, convert
from streamoe_engine.errors import ModelFileWrongSize, PlanDoesNotFit, ReadFailed
from streamoe_engine.plan import HostCosts, PlanRequest, make_plan, page_table_bytes, smallest_budget
from streamoe_engine.plan_head import RING_BLOCKS
from streamoe_engine.sizes import GIB, MIB
from tests.checkpoints import write_checkpoint
from tests.engine.test_exactness import IDS, PROMPT
from tests.manifests import qwen36_manifest
from tests.running import HOST, budget_for_slots, open_band, run_logits
from tests.tiny_models import TINY_CONFIGS

Folders = Callable[..., tuple[Path, Path]]
C = pytest.param(
    "kernels", marks=pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())
)


def same_logits(folder: Path, **options: Any) -> None:
    """With the head in memory and with it streamed."""
    with open_band(folder, 4, head="resident", **options) as band:
        assert band.plan.streamed_head is None
        expected = run_logits(band, IDS, PROMPT)
        expected_last = band.run(restarted(band), IDS[:PROMPT], "last_logits")
    with open_band(folder, 4, head="streamed", **options) as band:
        assert band.plan.streamed_head is not None and band.plan.streamed_head.layout.num_blocks > RING_BLOCKS
        assert np.array_equal(run_logits(band, IDS, PROMPT), expected)
        assert np.array_equal(band.run(restarted(band), IDS[:PROMPT], "last_logits"), expected_last)


def restarted(band: Band) -> Any:
    for state in list(band._states):
        state.release()
    return band.new_state()


@pytest.mark.parametrize("backend", ["mlx", C])
@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen3_moe", "olmoe"])
def test_the_same_bits(tiny_folder: Folders, family: str, backend: str) -> None:
    same_logits(tiny_folder(family)[1], backend=backend)


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_the_same_bits_of_other_families(tiny_folder: Folders, family: str) -> None:
    same_logits(tiny_folder(family)[1])


@pytest.mark.parametrize("backend", ["mlx", C])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("is_tied", [False, True])
def test_dense_and_tied_heads_of_an_odd_vocabulary(tmp_path: Path, backend: str, dtype: str, is_tied: bool) -> None:
    config = {**TINY_CONFIGS["qwen3_moe"], "vocab_size": 301, "tie_word_embeddings": is_tied}
    source = write_checkpoint(tmp_path / "source", "qwen3_moe", dtype=dtype, quantized=False, config=config)  # type: ignore[arg-type]
    convert(source, tmp_path / "model", ConvertOptions(quantize="keep"))
    same_logits(tmp_path / "model", backend=backend)


def test_as_a_gpu_computes(tiny_folder: Folders) -> None:
    same_logits(tiny_folder("qwen3_moe")[1], compute_dtype="bfloat16")


@pytest.mark.parametrize("backend", ["mlx", C])
def test_blocks_that_fit_are_kept_and_not_read_again(embedded_folder: Path, backend: str) -> None:
    ids = IDS[:6]
    with open_band(embedded_folder, head="streamed", backend=backend) as band:
        expected, pass_bytes, head = run_logits(band, ids, 4), one_pass(band), band.plan.streamed_head
    assert head is not None
    options = BandOptions(1, ctx_tokens=256, backend=backend, host=HOST, head="streamed")  # type: ignore[arg-type]
    room = 5 * (head.layout.block_bytes + page_table_bytes(head.layout.block_bytes))
    options = replace(options, head="auto", budget_bytes=budget_for_slots(embedded_folder, options, 0) + room)
    with Band.open(embedded_folder, options) as band:
        assert band.plan.streamed_head == replace(head, kept_blocks=5)
        assert np.array_equal(run_logits(band, ids, 4), expected)
        assert one_pass(band) == pytest.approx(pass_bytes * (1 - 5 / head.layout.num_blocks), rel=0.05)


def one_pass(band: Band) -> int:
    """Bytes of the head read for one token."""
    state = restarted(band)
    before = band.telemetry()
    band.run(state, IDS[:1], "nothing")
    between = band.telemetry().since(before)
    assert between.head_read_bytes == 0
    band.run(state, IDS[1:2], "last_logits")
    counts = band.telemetry().since(before)
    assert counts.read_bytes == counts.total("read_bytes") + counts.head_read_bytes
    assert counts.wait_s >= counts.head_wait_s > 0
    return counts.head_read_bytes


@pytest.mark.parametrize("backend", ["mlx", C])
def test_a_file_cut_short_ends_the_sequence_and_not_the_band(
    tiny_folder: Folders, tmp_path: Path, backend: str
) -> None:
    folder = Path(shutil.copytree(tiny_folder("qwen3_moe")[1], tmp_path / "model"))
    path = folder / "resident/tail.safetensors"
    whole = path.read_bytes()
    with open_band(folder, head="streamed", backend=backend) as band:
        expected = run_logits(band, IDS, PROMPT)
        state = restarted(band)
        os.truncate(path, 0)
        with pytest.raises(ReadFailed, match=r"tail\.safetensors"):
            band.run(state, IDS)
        assert not state.is_held
        path.write_bytes(whole)
        assert np.array_equal(run_logits(band, IDS, PROMPT), expected)
    os.truncate(path, len(whole) - 1)
    with pytest.raises(ModelFileWrongSize, match=r"tail\.safetensors"):
        open_band(folder, head="streamed", backend=backend)


MANIFEST = qwen36_manifest()
# What a chat with the 248k vocabulary costs before it opens a band (docs/lab-log.md).
CHAT = HostCosts(runtime_bytes=72 * MIB, tokenizer_bytes=66 * MIB, growth_bytes=16 * MIB)
REQUEST = PlanRequest(budget_bytes=GIB, ctx_tokens=4096, kv="f32", backend="kernels", chunk_tokens=256)


def test_the_35b_shape_opens_at_a_gib_and_a_quarter() -> None:
    smallest = smallest_budget(MANIFEST, REQUEST, CHAT)
    assert smallest <= 1.25 * GIB
    resident = smallest_budget(MANIFEST, replace(REQUEST, head="resident"), CHAT)
    assert resident - smallest > 250 * MIB
    plan = make_plan(MANIFEST, replace(REQUEST, budget_bytes=5 * GIB // 4), CHAT)
    row = next(item for item in plan.items if item.name == "output head")
    assert "read for each token" in row.why and "no room" in row.why
    assert plan.streamed_head is not None and row.num_bytes == plan.streamed_head.num_bytes + 2 * MIB


def test_it_is_streamed_only_where_it_must_be() -> None:
    resident = smallest_budget(MANIFEST, replace(REQUEST, head="resident"), CHAT)
    fits = make_plan(MANIFEST, replace(REQUEST, budget_bytes=resident), CHAT)
    assert fits.streamed_head is None and fits.item_bytes("output head") == 0
    for short in (1, 10 * MIB, 100 * MIB):
        plan = make_plan(MANIFEST, replace(REQUEST, budget_bytes=resident - short), CHAT)
        assert plan.streamed_head is not None
        assert sum(item.num_bytes for item in plan.items) == resident - short
        kept = plan.streamed_head.kept_blocks
        assert 0 < kept < plan.streamed_head.layout.num_blocks - RING_BLOCKS
    streamed = make_plan(MANIFEST, replace(REQUEST, budget_bytes=4 * GIB, head="streamed"), CHAT)
    kept = make_plan(MANIFEST, replace(REQUEST, budget_bytes=4 * GIB), CHAT)
    assert streamed.streamed_head is not None and streamed.streamed_head.kept_blocks == 0
    assert streamed.slots > kept.slots


def test_a_refusal_suggests_it_where_it_was_ruled_out() -> None:
    resident = replace(REQUEST, head="resident", chunk_tokens=4, guess_width=0)
    with pytest.raises(PlanDoesNotFit, match=r"--head streamed"):
        needed = smallest_budget(MANIFEST, resident, CHAT)
        make_plan(MANIFEST, replace(resident, budget_bytes=needed - 200 * MIB), CHAT)


def test_a_band_without_the_head_does_not_mind() -> None:
    first = replace(REQUEST, layers=(0, 19), budget_bytes=2 * GIB)
    plans = [make_plan(MANIFEST, replace(first, head=head), CHAT) for head in ("auto", "resident", "streamed")]  # type: ignore[arg-type]
    assert plans[0] == plans[1] == plans[2]
