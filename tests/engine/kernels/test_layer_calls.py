"""Whole layers in C: equal to mlx-lm's modules in float32, and bit for bit to themselves however they are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlx.core as mx
import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine import mlx_lm_import as lm
from tests.engine.kernels.c_layers import CONTEXT, CLayer
from tests.engine.kernels.oracle_layers import OracleLayer, Outputs, tiny_model

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())

# Family and layer: in the first two, layers of linear attention and of softmax attention take turns.
LAYERS = [
    ("qwen3_5_moe", 0),
    ("qwen3_5_moe", 1),
    ("qwen3_next", 0),
    ("qwen3_next", 1),
    ("qwen3_moe", 0),
    ("olmoe", 0),
    ("mixtral", 0),
]
TOLERANCE = 1e-5  # of the largest value
FIELDS = ("after", "expert_input", "router_logits", "guess_logits", "shared")


@pytest.fixture(params=kernels.available_isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(kernels.ISA_VARIABLE, request.param)
    return request.param


@contextmanager
def c_layer(oracle: OracleLayer, threads: int = 2, cache_dtype: str = "F32") -> Iterator[CLayer]:
    made = kernels.load(threads)
    assert made is not None
    shared = oracle.shared() if hasattr(oracle.block, "shared_expert") else None
    try:
        yield CLayer(made, oracle.describe(cache_dtype), shared)
    finally:
        made.close()


def inputs(oracle: OracleLayer, tokens: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((tokens, oracle.width)).astype(np.float32)


def in_chunks(hidden: np.ndarray, sizes: Sequence[int]) -> Iterator[np.ndarray]:
    start = 0
    for size in sizes:
        yield hidden[start : start + size]
        start += size
    assert start == len(hidden)


def assert_close(mine: np.ndarray, reference: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert np.abs(mine - reference).max() <= tolerance * np.abs(reference).max()


def assert_outputs_close(mine: Outputs, reference: Outputs) -> None:
    for name in FIELDS:
        a, b = getattr(mine, name), getattr(reference, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert_close(a, b)


def joined(parts: Sequence[Outputs]) -> bytes:
    return b"".join(
        np.concatenate([getattr(part, name) for part in parts]).tobytes()
        for name in FIELDS
        if getattr(parts[0], name) is not None
    )


@pytest.mark.parametrize(("family", "number"), LAYERS)
def test_equals_mlx_lm(family: str, number: int, isa: str) -> None:
    oracle = OracleLayer(family, tiny_model(family), number)
    hidden = inputs(oracle, 30)
    with c_layer(oracle) as mine:
        for chunk in in_chunks(hidden, [7, 1, 1, *[1] * 17, 4]):
            assert_outputs_close(mine.run(chunk), oracle.run(chunk))
        assert_same_state(oracle, mine)


@pytest.mark.parametrize("heads", [(4, 4), (12, 1), (18, 2), (2, 1)])
@pytest.mark.parametrize("head_dim", [16, 48, 80, 256])
def test_shapes_of_attention(heads: tuple[int, int], head_dim: int, isa: str) -> None:
    changes = {"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "head_dim": head_dim}
    oracle = OracleLayer("qwen3_moe", tiny_model("qwen3_moe", **changes), 0)
    with c_layer(oracle) as mine:
        for chunk in in_chunks(inputs(oracle, 12), [5, 1, 6]):
            assert_outputs_close(mine.run(chunk), oracle.run(chunk))


@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (2, 6)])
@pytest.mark.parametrize("dims", [(16, 96), (128, 128), (256, 32)])
def test_shapes_of_linear_attention(heads: tuple[int, int], dims: tuple[int, int], isa: str) -> None:
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    changes = {f"linear_{name}": size for name, size in zip(names, (*heads, *dims), strict=True)}
    oracle = OracleLayer("qwen3_next", tiny_model("qwen3_next", **changes), 0)
    with c_layer(oracle) as mine:
        for chunk in in_chunks(inputs(oracle, 40), [2, 1, 37]):
            assert_outputs_close(mine.run(chunk), oracle.run(chunk))
        assert_same_state(oracle, mine)


def assert_same_state(oracle: OracleLayer, mine: CLayer) -> None:
    if oracle.is_linear:
        conv_state, state = (np.array(array[0]) for array in oracle.cache.cache)
    else:
        conv_state, state = (np.array(array[0]) for array in (oracle.cache.keys, oracle.cache.values))
        conv_state, state = conv_state[:, : mine.position], state[:, : mine.position]
        mine.state = [array[:, : mine.position] for array in mine.state]
    assert_close(mine.state[0], conv_state)
    assert_close(mine.state[1], state)


@pytest.mark.parametrize(("family", "number"), [("qwen3_5_moe", 1), ("olmoe", 0)])
def test_equals_mlx_lm_past_a_block_of_keys(family: str, number: int) -> None:
    oracle = OracleLayer(family, tiny_model(family), number)
    hidden = inputs(oracle, CONTEXT)
    with c_layer(oracle) as mine:
        for chunk in in_chunks(hidden, [250, 1, 1, 10, 1, CONTEXT - 263]):
            assert_outputs_close(mine.run(chunk), oracle.run(chunk))


@pytest.mark.parametrize("cache_dtype", ["F16", "BF16"])
def test_equals_mlx_lm_with_a_rounded_cache(cache_dtype: str, isa: str) -> None:
    oracle = OracleLayer("qwen3_5_moe", tiny_model("qwen3_5_moe"), 1)
    oracle.cache = RoundingCache(mx.float16 if cache_dtype == "F16" else mx.bfloat16)
    with c_layer(oracle, cache_dtype=cache_dtype) as mine:
        for chunk in in_chunks(inputs(oracle, 20), [9, 1, 10]):
            # A key that float32 noise rounds the other way moves the result more than the noise itself.
            assert_close(mine.run(chunk).after, oracle.run(chunk).after, 1e-3)
        rounded = [array[:, :20].view(np.uint16) for array in mine.state]
    with c_layer(oracle) as mine:
        mine.run(inputs(oracle, 20))
        for array, stored in zip(mine.state, rounded, strict=True):
            assert np.array_equal(np.array(mx.array(array[:, :20]).astype(oracle.cache.dtype).view(mx.uint16)), stored)


class RoundingCache:
    """Keeps keys and values in `dtype`, hands them out in float32."""

    def __init__(self, dtype: mx.Dtype) -> None:
        self.dtype, self.offset, self.keys, self.values = dtype, 0, None, None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        keys, values = keys.astype(self.dtype), values.astype(self.dtype)
        if self.keys is not None:
            keys, values = mx.concatenate([self.keys, keys], 2), mx.concatenate([self.values, values], 2)
        self.keys, self.values, self.offset = keys, values, keys.shape[2]
        return keys.astype(mx.float32), values.astype(mx.float32)

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> object:
        return lm.cache.create_attention_mask(num_tokens, self.offset, return_array, window_size)


@pytest.mark.parametrize(("family", "number"), LAYERS)
def test_bits_do_not_depend_on_threads_or_chunks(family: str, number: int, isa: str) -> None:
    oracle = OracleLayer(family, tiny_model(family), number)
    hidden = inputs(oracle, 40)
    seen = set()
    for threads, sizes in [(1, [40]), (2, [40]), (4, [40]), (2, [1] * 40), (1, [7, 7, 7, 7, 7, 5]), (4, [33, 1, 1, 5])]:
        with c_layer(oracle, threads) as mine:
            parts = [mine.run(chunk) for chunk in in_chunks(hidden, sizes)]
            states = [array[:, :40].tobytes() for array in mine.state]
            seen.add((joined(parts), *states))
    assert len(seen) == 1


def test_in_place_and_without_a_guess(isa: str) -> None:
    oracle = OracleLayer("qwen3_5_moe", tiny_model("qwen3_5_moe"), 0)
    hidden = inputs(oracle, 6)
    with c_layer(oracle) as mine:
        expected = mine.run(hidden)
    with c_layer(oracle) as mine:
        again = mine.run(hidden.copy(), in_place=True, has_guess=False)
    assert again.guess_logits is None
    assert again.after.tobytes() == expected.after.tobytes()
    assert again.router_logits.tobytes() == expected.router_logits.tobytes()


@pytest.mark.parametrize("cache_dtype", ["F32", "F16"])
def test_bits_of_long_attention_do_not_depend_on_threads_or_chunks(cache_dtype: str, isa: str) -> None:
    oracle = OracleLayer("qwen3_5_moe", tiny_model("qwen3_5_moe"), 1)
    hidden = inputs(oracle, CONTEXT)
    seen = set()
    for threads, sizes in [(2, [CONTEXT]), (1, [255, 1, 64]), (4, [*[1] * CONTEXT]), (2, [*[7] * 45, 5])]:
        with c_layer(oracle, threads, cache_dtype) as mine:
            seen.add(joined([mine.run(chunk) for chunk in in_chunks(hidden, sizes)]))
    assert len(seen) == 1
