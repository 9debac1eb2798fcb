"""The C path: as near to MLX's float32 as float32 allows, and the same bits at every cap, guess, chunk and thread
count, and over bands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.band import Band, BandOptions
from streamoe_engine.layers.kernel_describe import KERNEL_FAMILIES
from streamoe_engine.sizes import GIB
from tests.engine.test_exactness import IDS, PROMPT, Liar
from tests.running import open_band, run_logits

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())
Folders = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def resident(tiny_folder: Folders) -> Callable[[str], np.ndarray]:
    """Logits with every expert in memory, no guess, one thread."""
    known: dict[str, np.ndarray] = {}

    def logits(family: str) -> np.ndarray:
        if family not in known:
            with open_band(tiny_folder(family)[1], 100, backend="kernels", guess="none", threads=1) as band:
                known[family] = run_logits(band, IDS, PROMPT)
        return known[family]

    return logits


def divergence(reference: np.ndarray, other: np.ndarray) -> float:
    """The largest Kullback-Leibler divergence over positions, in nats."""
    first, second = (logits.astype(np.float64) for logits in (reference, other))
    first -= np.log(np.exp(first).sum(-1, keepdims=True))
    second -= np.log(np.exp(second).sum(-1, keepdims=True))
    return float((np.exp(first) * (first - second)).sum(-1).max())


@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_as_near_to_mlx_as_float32_allows(tiny_folder: Folders, resident, family: str) -> None:
    with open_band(tiny_folder(family)[1], 100) as band:
        expected = run_logits(band, IDS, PROMPT)
    assert divergence(expected, resident(family)) < 1e-6
    assert np.abs(expected - resident(family)).max() < 1e-4


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("guess", ["auto", "previous-token", "none", "liar"])
@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_the_smallest_pool_gives_the_same_bits(tiny_folder: Folders, resident, family, guess, threads) -> None:
    chosen = Liar(8) if guess == "liar" else guess
    with open_band(tiny_folder(family)[1], backend="kernels", guess=chosen, guess_width=3, threads=threads) as band:
        got = run_logits(band, IDS, PROMPT)
        assert band.plan.backend == "kernels"
        assert band.telemetry().total("misses") > 0
    assert np.array_equal(got, resident(family))


@pytest.mark.parametrize("chunk", [1, 3, 7, 20])
@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_the_chunk_changes_no_bit(tiny_folder: Folders, resident, family: str, chunk: int) -> None:
    with open_band(tiny_folder(family)[1], 2, backend="kernels", threads=2) as band:
        state = band.new_state()
        pieces = [band.run(state, IDS[at : at + chunk], "all_logits") for at in range(0, len(IDS), chunk)]
    assert np.array_equal(np.concatenate(pieces), resident(family))


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_two_bands_equal_one(tiny_folder: Folders, resident, family: str, cut: int) -> None:
    folder = tiny_folder(family)[1]
    with (
        open_band(folder, layers=(0, cut - 1), backend="kernels") as first,
        open_band(folder, layers=(cut, 3), backend="kernels") as last,
    ):
        states = first.new_state(), last.new_state()
        pieces = [IDS[:PROMPT], *(IDS[at : at + 1] for at in range(PROMPT, len(IDS)))]
        logits = [last.run(states[1], first.run(states[0], piece, "hidden"), "all_logits") for piece in pieces]
    assert np.array_equal(np.concatenate(logits), resident(family))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_stored_type(tiny_folder: Folders, dtype: str) -> None:
    folder = tiny_folder("qwen3_5_moe", dtype)[1]
    with open_band(folder, 9) as mlx, open_band(folder, 9, backend="kernels") as c:
        assert divergence(run_logits(mlx, IDS, PROMPT), run_logits(c, IDS, PROMPT)) < 1e-6


@pytest.mark.parametrize("kv", ["f16", "bf16"])
def test_narrow_keys_and_values(tiny_folder: Folders, resident, kv: str) -> None:
    with open_band(tiny_folder("qwen3_moe")[1], 9, kv=kv) as mlx:
        expected = run_logits(mlx, IDS, PROMPT)
    with open_band(tiny_folder("qwen3_moe")[1], 9, backend="kernels", kv=kv) as c:
        got = run_logits(c, IDS, PROMPT)
    assert not np.array_equal(got, resident("qwen3_moe"))
    assert np.abs(got - expected).max() < 2e-2  # rounding of keys and values alone
    assert divergence(expected, got) < 1e-4


def test_the_path_is_chosen(tiny_folder: Folders) -> None:
    with Band.open(tiny_folder("olmoe")[1], BandOptions(budget_bytes=GIB, ctx_tokens=64)) as band:
        assert band.plan.backend == "kernels"
