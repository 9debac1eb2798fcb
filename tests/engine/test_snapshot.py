"""A state saved in one band goes on in another, bit for bit: other caps, other cuts, every family and KV format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.band import Band, SequenceState
from streamoe_engine.errors import ContextFull, SnapshotMismatch, StateLost, UsageError
from streamoe_engine.layers.kernel_describe import KERNEL_FAMILIES
from streamoe_engine.plan import PlanRequest, snapshot_bytes
from streamoe_engine.snapshot_stream import from_chunks, to_chunks
from streamoe_engine.state_snapshot import StateSnapshot, merged
from tests.running import open_band
from tests.tiny_models import TINY_CONFIGS

IDS = np.random.default_rng(6).integers(0, 250, 40).astype(np.int32)
Folders = Callable[..., tuple[Path, Path]]
HAS_KERNELS = not kernels.unavailable_reason()
PATHS = [("mlx", family) for family in TINY_CONFIGS]
PATHS += (
    [("kernels" if family in KERNEL_FAMILIES else "auto", family) for family in TINY_CONFIGS] if HAS_KERNELS else []
)


def run(bands: Sequence[Band], states: Sequence[SequenceState], ids: np.ndarray) -> np.ndarray:
    """(tokens, vocabulary): ids, as one chunk, through the bands in turn."""
    hidden = ids
    for band, state in zip(bands, states, strict=True):
        hidden = band.run(state, hidden, "all_logits" if band is bands[-1] else "hidden")
    return hidden


def goes_on(bands: Sequence[Band], states: Sequence[SequenceState], ids: np.ndarray) -> np.ndarray:
    """Two tokens one by one, then the rest as a chunk."""
    pieces = [ids[:1], ids[1:2], ids[2:]]
    return np.concatenate([run(bands, states, piece) for piece in pieces if len(piece)])


def travelled(snapshot: StateSnapshot) -> StateSnapshot:
    return from_chunks([bytes(chunk) for chunk in to_chunks(snapshot, 1000)], snapshot.num_bytes)


@pytest.mark.parametrize(("backend", "family"), PATHS)
def test_a_restored_state_goes_on_with_the_same_bits(tiny_folder: Folders, backend: str, family: str) -> None:
    """At the start, amid gpt_oss' window of 16, at its edge, and when its ring has turned."""
    folder = tiny_folder(family)[1]
    with open_band(folder, 3, backend=backend, sequences=2) as band, open_band(folder, 40, backend=backend) as other:
        state = band.new_state()
        for position in (0, 1, 7, 16, 25):
            if position > state.position:
                band.run(state, IDS[state.position : position], "nothing")
            snapshot = band.snapshot(state)
            again = band.restore(snapshot)
            expected = goes_on([band], [again], IDS[position : position + 9])
            again.release()
            restored = other.restore(travelled(snapshot))
            assert restored.position == position
            assert np.array_equal(goes_on([other], [restored], IDS[position : position + 9]), expected)
            restored.release()
        assert np.array_equal(run([band], [state], IDS[25:26])[0], expected[0])  # the original was left alone


@pytest.mark.parametrize("kv", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("backend", ["mlx", "kernels"] if HAS_KERNELS else ["mlx"])
def test_every_kv_format(tiny_folder: Folders, backend: str, kv: str) -> None:
    with open_band(tiny_folder("qwen3_5_moe")[1], 3, backend=backend, kv=kv, sequences=2) as band:
        state = band.new_state()
        band.run(state, IDS[:13], "nothing")
        restored = band.restore(travelled(band.snapshot(state)))
        expected = goes_on([band], [state], IDS[13:20])
        assert np.array_equal(goes_on([band], [restored], IDS[13:20]), expected)


@pytest.mark.parametrize("family", ["qwen3_5_moe", "gpt_oss", "deepseek_v3"])
def test_bfloat16_states_survive(tiny_folder: Folders, family: str) -> None:
    with open_band(tiny_folder(family)[1], 3, compute_dtype="bfloat16", sequences=2) as band:
        state = band.new_state()
        band.run(state, IDS[:21], "nothing")
        restored = band.restore(travelled(band.snapshot(state)))
        assert np.array_equal(goes_on([band], [restored], IDS[21:]), goes_on([band], [state], IDS[21:]))


@pytest.mark.parametrize(("backend", "family"), [("mlx", "gpt_oss"), ("mlx", "qwen3_next"), ("kernels", "qwen3_5_moe")])
def test_one_band_to_two_to_three_and_back(tiny_folder: Folders, backend: str, family: str) -> None:
    if backend == "kernels" and not HAS_KERNELS:
        pytest.skip(kernels.unavailable_reason())
    folder, cuts = tiny_folder(family)[1], [[(0, 3)], [(0, 1), (2, 3)], [(0, 0), (1, 2), (3, 3)], [(0, 3)]]
    snapshot, pieces, position = None, [], 0
    for layers in cuts:
        with ExitStack() as stack:
            bands = [stack.enter_context(open_band(folder, backend=backend, layers=pair)) for pair in layers]
            states = [band.restore(snapshot) if snapshot else band.new_state() for band in bands]
            pieces.append(goes_on(bands, states, IDS[position : position + 10]))
            position += 10
            snapshot = travelled(merged([band.snapshot(s) for band, s in zip(bands, states, strict=True)]))
            assert list(snapshot.layers) == [0, 1, 2, 3]
    with open_band(folder, 5, backend=backend) as whole:
        state = whole.new_state()
        expected = [goes_on([whole], [state], IDS[at : at + 10]) for at in range(0, 40, 10)]
    assert np.array_equal(np.concatenate(pieces), np.concatenate(expected))


def test_its_bytes_are_what_the_planner_says(tiny_folder: Folders) -> None:
    for family in TINY_CONFIGS:
        with open_band(tiny_folder(family)[1], 3) as band:
            state = band.new_state()
            for _ in range(3):
                band.run(state, IDS[:13], "nothing")
            request = PlanRequest(1, ctx_tokens=256, kv="f32", chunk_tokens=band.chunk_tokens)
            foretold = snapshot_bytes(band.manifest, request, state.position)
            measured = band.snapshot(state).num_bytes
            assert measured <= foretold
            if family != "gpt_oss":  # a window may hold a chunk more
                assert measured == foretold
            assert snapshot_bytes(band.manifest, request, 0) == 0


def test_what_does_not_belong_is_refused(tiny_folder: Folders) -> None:
    folder = tiny_folder("qwen3_5_moe")[1]
    with open_band(folder, layers=(0, 1)) as first, open_band(folder, layers=(2, 3)) as last:
        state = first.new_state()
        first.run(state, IDS[:5], "nothing")
        snapshot = first.snapshot(state)
        with pytest.raises(SnapshotMismatch, match="lacks 2 of the layers 2-3, the first is 2"):
            last.restore(snapshot)
        with pytest.raises(SnapshotMismatch, match="in two of the snapshots"):
            merged([snapshot, snapshot])
        other = replace(last.snapshot(last.new_state()), position=4)
        with pytest.raises(SnapshotMismatch, match="position 5 and 4"):
            merged([snapshot, other])
        with pytest.raises(UsageError, match="room for one sequence"):
            first.restore(snapshot)
        state.release()
        with pytest.raises(StateLost):
            first.snapshot(state)
        for name, value in (("kv", "f16"), ("family", "olmoe"), ("fingerprint", "0" * 64), ("backend", "kernels")):
            with pytest.raises(SnapshotMismatch, match=f"snapshot's {name} is {value}"):
                first.restore(replace(snapshot, **{name: value}))
    with open_band(folder, layers=(0, 1), ctx_tokens=4) as short, pytest.raises(ContextFull):
        short.restore(snapshot)


@pytest.mark.parametrize("change", ["missing", "surplus", "shape", "dtype", "length"])
def test_arrays_that_fit_no_layer_are_refused(tiny_folder: Folders, change: str) -> None:
    """A peer's bytes may be whole and still wrong."""
    with open_band(tiny_folder("qwen3_5_moe")[1]) as band:
        state = band.new_state()
        band.run(state, IDS[:5], "nothing")
        snapshot = band.snapshot(state)
        state.release()
        recurrent, attention = dict(snapshot.layers[0]), dict(snapshot.layers[1])
        if change == "missing":
            del recurrent["recurrent_1"]
        elif change == "surplus":
            attention["more"] = attention["keys"]
        elif change == "shape":
            recurrent["recurrent_0"] = recurrent["recurrent_0"][:, :-1]
        elif change == "dtype":
            attention["values"] = attention["values"].astype(np.float16)
        else:
            attention["keys"] = attention["keys"][:, :-1]
        with pytest.raises(SnapshotMismatch, match=r"layer [01]"):
            band.restore(replace(snapshot, layers={**snapshot.layers, 0: recurrent, 1: attention}))
