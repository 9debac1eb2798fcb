"""The rule by which a prompt is cut over several bands, against the design's table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.prompt_cuts import BandCost, CostMeter, prompt_s, step_tokens

# One SSD: 4.1 s a pass over all layers, 4.8 ms a token.
PASS_S, TOKEN_S = 4.1, 0.0048


def even_bands(num_bands: int, chunk_tokens: int = 4096) -> list[BandCost]:
    return [BandCost(chunk_tokens, PASS_S / num_bands, TOKEN_S / num_bands)] * num_bands


@pytest.mark.parametrize(
    ("prompt", "num_bands", "num_steps", "seconds"),
    [
        (309, 2, 1, 5.6),
        (309, 4, 1, 5.6),
        (1024, 2, 1, 9.0),
        (1024, 4, 2, 8.2),
        (2048, 2, 2, 13.5),
        (2048, 4, 3, 11.1),
        (4096, 2, 2, 20.9),
        (4096, 4, 4, 15.8),
    ],
)
def test_the_rule_of_the_design(prompt: int, num_bands: int, num_steps: int, seconds: float):
    costs = even_bands(num_bands)
    size = step_tokens(prompt, costs, 4096)
    assert -(-prompt // size) == num_steps
    assert prompt_s(prompt, num_steps, costs) == pytest.approx(seconds, abs=0.15)


@pytest.mark.parametrize("num_bands", [2, 3, 5])
def test_a_short_prompt_is_never_cut(num_bands: int):
    assert step_tokens(200, even_bands(num_bands), 4096) == 200


def test_one_band_is_given_all_it_may_have():
    assert step_tokens(3000, even_bands(1), 4096) == 3000
    assert step_tokens(3000, even_bands(1), 1000) == 1000


def test_what_nodes_cut_anyway_is_overlapped():
    # Chunks of 256 are forced by the plans: eight passes each, so eight steps cost no read more.
    size = step_tokens(2048, even_bands(2, chunk_tokens=256), 4096)
    assert size == 256


@given(st.integers(1, 5000), st.integers(1, 6), st.integers(1, 4096), st.sampled_from((64, 256, 4096)))
def test_steps_fit_and_are_no_worse_than_whole(prompt: int, num_bands: int, most: int, chunk_tokens: int):
    costs = even_bands(num_bands, chunk_tokens)
    size = step_tokens(prompt, costs, most)
    assert 1 <= size <= min(most, prompt)
    num_steps = -(-prompt // size)
    if most >= prompt:
        assert prompt_s(prompt, num_steps, costs) <= prompt_s(prompt, 1, costs) * 1.001


def test_a_meter_learns_what_passes_and_tokens_cost():
    meter = CostMeter(256)
    for num_tokens in (256, 1024, 600, 200):
        meter.add(num_tokens, -(-num_tokens // 256) * 2.0 + num_tokens * 0.01)
    cost = meter.cost()
    assert cost.pass_s == pytest.approx(2.0) and cost.token_s == pytest.approx(0.01)


def test_a_meter_of_one_size_keeps_the_usual_ratio():
    meter = CostMeter(4096)
    meter.add(1, 99.0)  # decode says nothing of prompts
    meter.add(500, 1.35)
    cost = meter.cost()
    assert cost.step_s(500) - cost.step_s(1) == pytest.approx(499 * 0.001, rel=1e-6)
    assert cost.pass_s == pytest.approx(0.85)
