"""A token's experts, with the shared one and in any order of landing; routing; and the sum of what comes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamoe_engine.kernels import Expert, Kernels
from streamoe_engine.kernels.layer_calls import LayerCalls
from streamoe_engine.kernels.native import address_of
from streamoe_engine.kernels.part_calls import SharedExpert
from streamoe_engine.kernels.token_experts import TokenExperts
from streamoe_engine.layers.kernel_routing import combine
from tests.engine.kernels.conftest import MakeKernels
from tests.engine.kernels.packed import random_matrix
from tests.engine.kernels.test_experts import WIDTH, Slots, make_slots, some_rows, token

PICKS = [4, 0, 5, 2]
SHARED_HIDDEN = 96  # less than an expert's own, of another packing


@pytest.fixture(scope="module")
def slots() -> Slots:
    return make_slots(192, (4, 64, "BF16"), (4, 32, "BF16"))


class Shared:
    """A shared expert, and what keeps its weights."""

    def __init__(self, has_scale: bool) -> None:
        random = np.random.default_rng(5)
        up = ((SHARED_HIDDEN, WIDTH), (SHARED_HIDDEN, WIDTH))
        made = [random_matrix(random, rows, cols, (8, 32, "BF16")) for rows, cols in (*up, (WIDTH, SHARED_HIDDEN))]
        scale = random_matrix(random, 1, WIDTH, (8, 32, "BF16"))
        self.kept = [*made, scale]
        expert = Expert(*(matrix.matrix for matrix in made))
        self.described = SharedExpert(expert, scale.matrix if has_scale else None)


def products(
    kernels: Kernels, slots: Slots, shared: Shared | None, x: np.ndarray, split: list[list[int]]
) -> np.ndarray:
    out = np.full((len(PICKS) + (shared is not None), WIDTH), np.nan, np.float32)
    scratch = np.full(len(PICKS) * slots.expert.gate.rows + SHARED_HIDDEN, np.nan, np.float32)
    experts = TokenExperts(kernels, slots.expert, None if shared is None else shared.described, scratch, out)
    for number, places in enumerate(split):
        records = [slots.addresses[PICKS[place]] for place in places]
        experts.run(address_of(x), records, places, with_shared=number == 0)
    return out


@pytest.mark.parametrize("split", [[[0, 1, 2, 3]], [[], [2], [3, 0], [1]], [[1, 3], [2, 0]]])
@pytest.mark.parametrize("has_scale", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_order_of_landing_gives_the_bits_of_experts_alone(
    make_kernels: MakeKernels, slots: Slots, split: list[list[int]], has_scale: bool, threads: int
) -> None:
    kernels, x, shared = make_kernels(threads), some_rows(1), Shared(has_scale)
    out = products(kernels, slots, shared, x, split)
    assert out[:-1].tobytes() == token(kernels, slots, PICKS, x).tobytes()
    calls, alone = LayerCalls(kernels), np.empty((1, WIDTH), np.float32)
    scratch = np.zeros(calls.shared_scratch_bytes(shared.described, 1), np.uint8)
    calls.run_shared(shared.described, x, scratch, alone)
    assert out[-1].tobytes() == alone.tobytes()


def test_without_a_shared_expert(make_kernels: MakeKernels, slots: Slots) -> None:
    kernels, x = make_kernels(2), some_rows(1)
    out = products(kernels, slots, None, x, [[], [3, 1], [0, 2]])
    assert out.tobytes() == token(kernels, slots, PICKS, x).tobytes()


@pytest.mark.parametrize("has_shared", [True, False])
@pytest.mark.parametrize("picks", [1, 2, 8])
def test_one_tokens_sum_has_the_bits_of_a_chunks(make_kernels: MakeKernels, picks: int, has_shared: bool) -> None:
    random = np.random.default_rng(picks)
    rows, hidden = (random.standard_normal((count, 48)).astype(np.float32) for count in (picks + has_shared, 1))
    weights, expected = random.random((1, picks), np.float32), hidden.copy()
    combine(expected, rows[None, :picks], weights, rows[picks:] if has_shared else None)
    LayerCalls(make_kernels(1)).combine(hidden, rows, weights)
    assert hidden.tobytes() == expected.tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    logits=st.lists(st.lists(st.sampled_from([-90.0, -1.5, 0.0, 0.25, 3.0]), min_size=9, max_size=9), min_size=1),
    top_k=st.integers(1, 9),
    normalise=st.booleans(),
)
def test_routing_takes_the_likeliest_of_equals_the_first(
    make_kernels: MakeKernels, logits: list[list[float]], top_k: int, normalise: bool
) -> None:
    wider = np.zeros((len(logits), 12), np.float32)  # logits may be columns of a wider buffer
    wider[:, :9] = logits
    picks, weights = LayerCalls(make_kernels(2)).route(wider[:, :9], top_k, normalise=normalise)
    for row, chosen, weight in zip(wider[:, :9].astype(np.float64), picks, weights, strict=True):
        assert chosen.tolist() == sorted(range(9), key=lambda expert, row=row: (-row[expert], expert))[:top_k]
        chances = np.exp(row - row.max())
        expected = chances[chosen] / (chances[chosen].sum() if normalise else chances.sum())
        assert np.allclose(weight, expected, rtol=1e-6, atol=1e-37)


def test_routing_picks_each_expert_once_even_of_nan(make_kernels: MakeKernels) -> None:
    logits = np.full((2, 16), np.nan, np.float32)
    logits[1, ::2] = 1
    picks, _ = LayerCalls(make_kernels(1)).route(logits, 4, normalise=True)
    assert all(len(set(row)) == 4 and 0 <= min(row) <= max(row) < 16 for row in picks.tolist())
