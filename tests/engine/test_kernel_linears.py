"""Families whose layers C does not know, with their matrices and experts multiplied by C: near MLX's float32, and the
same bits at every cap, guess, chunk and thread count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.band import Band, BandOptions
from streamoe_engine.checkpoint import ConvertOptions, convert
from streamoe_engine.errors import UsageError
from streamoe_engine.layers.kernel_linear import KernelExpertsOfMlx, KernelLinear, KernelMultiLinear
from streamoe_engine.layers.mlx_math import MlxExpertMath
from streamoe_engine.manifest import read_manifest
from streamoe_engine.plan import HostCosts, PlanRequest, make_plan
from streamoe_engine.sizes import GIB
from tests.checkpoints import write_checkpoint
from tests.engine.test_exactness import IDS, PROMPT, Liar
from tests.engine.test_kernel_path import divergence
from tests.running import open_band, run_logits
from tests.tiny_models import TINY_CONFIGS

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())
Folders = Callable[..., tuple[Path, Path]]
FAMILIES = ("mixtral", "deepseek_v3", "glm4_moe", "gpt_oss")
# Not so through MLX alone either: latent attention has another formula for one token than for several, and a window's
# ring holds its keys in another order after a chunk.
ROW_INVARIANT = ("mixtral", "glm4_moe")


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


def modules_of(band: Band) -> list[Any]:
    middle: Any = band._parts.layers._middle  # type: ignore[attr-defined]
    return [module for _, module in middle._inner.named_modules()]


class Picks:
    """Notes what each token was routed to: sets of (layer, expert), by token."""

    def __init__(self) -> None:
        self.by_token: list[set[tuple[int, int]]] = [set() for _ in IDS]
        self._single = PROMPT - 1

    def token(self, layer: int, picks: Sequence[int], candidates: Sequence[int]) -> None:
        self._single += layer == 1  # the first layer that has experts in all these families
        self.by_token[self._single] |= {(layer, expert) for expert in picks}

    def chunk(self, layer: int, picks: np.ndarray) -> None:
        for token, row in enumerate(picks.tolist()):
            self.by_token[token] |= {(layer, expert) for expert in row}


@pytest.mark.parametrize("family", FAMILIES)
def test_as_near_to_mlx_as_float32_allows(tiny_folder: Folders, resident, family: str) -> None:
    """Over all tokens but those where two experts are so near a tie that the last bits of float32 decide."""
    theirs, ours = Picks(), Picks()
    with open_band(tiny_folder(family)[1], 100, recorder=theirs) as band:
        assert not any(isinstance(module, KernelLinear) for module in modules_of(band))
        expected = run_logits(band, IDS, PROMPT)
    with open_band(tiny_folder(family)[1], 100, backend="kernels", recorder=ours) as band:
        got = run_logits(band, IDS, PROMPT)
    assert np.array_equal(got, resident(family)) and not np.array_equal(got, expected)
    first_tie = next(
        (n for n, pair in enumerate(zip(theirs.by_token, ours.by_token, strict=True)) if pair[0] != pair[1]), len(IDS)
    )
    assert first_tie >= len(IDS) - 1
    assert divergence(expected[:first_tie], got[:first_tie]) < 1e-6
    assert np.abs(expected - got)[:first_tie].max() < 1e-4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("guess", ["auto", "none", "liar"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_pool_gives_the_same_bits(tiny_folder: Folders, resident, family, guess, threads) -> None:
    chosen = Liar(8) if guess == "liar" else guess
    with open_band(tiny_folder(family)[1], backend="kernels", guess=chosen, guess_width=3, threads=threads) as band:
        assert band.plan.backend == "kernel-linears"
        assert np.array_equal(run_logits(band, IDS, PROMPT), resident(family))
        assert band.telemetry().total("misses") > 0


@pytest.mark.parametrize("chunk", [1, 3, 20])
@pytest.mark.parametrize("family", ROW_INVARIANT)
def test_the_chunk_changes_no_bit(tiny_folder: Folders, resident, family: str, chunk: int) -> None:
    with open_band(tiny_folder(family)[1], 2, backend="kernels", threads=2) as band:
        state = band.new_state()
        pieces = [band.run(state, IDS[at : at + chunk], "all_logits") for at in range(0, len(IDS), chunk)]
    assert np.array_equal(np.concatenate(pieces), resident(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_two_bands_equal_one(tiny_folder: Folders, resident, family: str) -> None:
    folder = tiny_folder(family)[1]
    with (
        open_band(folder, layers=(0, 1), backend="kernels") as first,
        open_band(folder, layers=(2, 3), backend="kernels") as last,
    ):
        states = first.new_state(), last.new_state()
        pieces = [IDS[:PROMPT], *(IDS[at : at + 1] for at in range(PROMPT, len(IDS)))]
        logits = [last.run(states[1], first.run(states[0], piece, "hidden"), "all_logits") for piece in pieces]
    assert np.array_equal(np.concatenate(logits), resident(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_streamed_head_gives_the_same_bits(tiny_folder: Folders, resident, family: str) -> None:
    with open_band(tiny_folder(family)[1], 2, backend="kernels", head="streamed") as band:
        assert band.plan.streamed_head is not None
        assert np.array_equal(run_logits(band, IDS, PROMPT), resident(family))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_matrices_that_are_not_packed(tmp_path: Path, family: str, dtype: str) -> None:
    """As the checkpoint has them, and with a head that is the embedding."""
    config = TINY_CONFIGS[family] | {"tie_word_embeddings": True}
    source = write_checkpoint(tmp_path / "source", family, dtype=dtype, quantized=False, config=config)  # type: ignore[arg-type]
    convert(source, tmp_path / "model", ConvertOptions(quantize="keep"))
    with open_band(tmp_path / "model", 9) as mlx, open_band(tmp_path / "model", 9, backend="kernels") as c:
        assert divergence(run_logits(mlx, IDS, PROMPT), run_logits(c, IDS, PROMPT)) < 1e-6
        assert sum(isinstance(module, KernelLinear) for module in modules_of(c)) > 4 * 4
        if dtype != "float32":
            assert c.plan.item_bytes("resident weights") < mlx.plan.item_bytes("resident weights")


@pytest.mark.parametrize(
    ("family", "experts", "has_multi"),
    [
        ("mixtral", KernelExpertsOfMlx, False),
        ("deepseek_v3", KernelExpertsOfMlx, True),
        ("gpt_oss", MlxExpertMath, False),  # its experts have biases and an activation of their own
    ],
)
def test_what_c_takes_over(tiny_folder: Folders, family: str, experts: type, has_multi: bool) -> None:
    with open_band(tiny_folder(family)[1], backend="kernels") as band:
        modules = modules_of(band)
        maths = {type(layer.math) for layer in modules_experts(band)}
    assert maths == {experts}
    assert any(isinstance(module, KernelMultiLinear) for module in modules) is has_multi


def modules_experts(band: Band) -> list[Any]:
    streamers = [module._streamer for module in modules_of(band) if hasattr(module, "_streamer")]
    return list(streamers[0]._layers.values())


def test_a_family_without_facts_runs_so_too(tiny_folder: Folders, monkeypatch, resident) -> None:
    monkeypatch.setattr("streamoe_engine.layers.mlx_build.FAMILIES", {})
    with open_band(tiny_folder("glm4_moe")[1], backend="kernels") as band:
        assert np.array_equal(run_logits(band, IDS, PROMPT), resident("glm4_moe"))


def test_a_model_that_looks_at_its_weights_is_left_to_mlx(tmp_path: Path, monkeypatch) -> None:
    from mlx_lm.models import mixtral

    attend = mixtral.MixtralAttention.__call__

    def nosy(self: Any, x: Any, *rest: Any, **options: Any) -> Any:
        assert self.o_proj.weight.shape[0] > 0
        return attend(self, x, *rest, **options)

    monkeypatch.setattr(mixtral.MixtralAttention, "__call__", nosy)
    # A configuration of its own: what is found out about one is kept, and the true class is not nosy.
    config = TINY_CONFIGS["mixtral"] | {"max_position_embeddings": 777}
    folder = tmp_path / "model"
    convert(write_checkpoint(tmp_path / "source", "mixtral", config=config), folder)
    with open_band(folder, backend="auto") as band:
        assert band.plan.backend == "mlx"
    with pytest.raises(UsageError, match="mixtral reads its matrices' weights itself"):
        open_band(folder, backend="kernels")


def test_a_gpus_type_is_left_to_mlx(tiny_folder: Folders) -> None:
    with pytest.raises(UsageError, match="it computes in bfloat16"):
        open_band(tiny_folder("mixtral")[1], backend="kernels", compute_dtype="bfloat16")


def test_the_path_is_chosen(tiny_folder: Folders) -> None:
    with Band.open(tiny_folder("mixtral")[1], BandOptions(budget_bytes=GIB, ctx_tokens=64)) as band:
        assert band.plan.backend == "kernel-linears"


def test_the_plan_counts_plain_matrices_as_they_are_stored(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "mixtral", quantized=False, dtype="bfloat16")
    convert(source, tmp_path / "model", ConvertOptions(quantize="keep"))
    manifest, host = read_manifest(tmp_path / "model"), HostCosts(0)
    rows = {
        backend: make_plan(manifest, PlanRequest(GIB, 64, backend=backend), host).item_bytes("resident weights")  # type: ignore[arg-type]
        for backend in ("mlx", "kernel-linears")
    }
    attention = 4 * sum(f.num_bytes for f in manifest.resident["layer-0000"] if "self_attn" in f.name)
    head = sum(f.num_bytes for f in manifest.resident["tail"] if len(f.shape) == 2)
    assert rows["mlx"] - rows["kernel-linears"] == attention + head
