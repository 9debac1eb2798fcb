"""Choosing tokens: greedy, seeded, penalised; and never of logits that are no numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.sampling import Sampler, SamplingParams, default_params, nucleus, override
from streamoe_engine.errors import NonFiniteLogits, UsageError
from streamoe_engine.mlx_lm_import import submodule

MLX_LM = submodule("sample_utils")
RANDOM = np.random.default_rng(3)


def logits(vocab_size: int = 500, scale: float = 3.0) -> np.ndarray:
    return (RANDOM.normal(size=vocab_size) * scale).astype(np.float32)


def normalised(values: np.ndarray) -> np.ndarray:
    return np.asarray(mx.array(values) - mx.logsumexp(mx.array(values)))


def drawn(params: SamplingParams, values: np.ndarray, times: int) -> list[int]:
    sampler = Sampler(params)
    return [sampler.choose(values, []) for _ in range(times)]


def test_temperature_0_takes_the_likeliest_whatever_else_is_set() -> None:
    for _ in range(20):
        values = logits()
        assert Sampler(SamplingParams(top_p=0.5, top_k=3, min_p=0.1, seed=1)).choose(values, []) == values.argmax()


def test_a_seed_repeats_and_another_does_not() -> None:
    values = logits()
    once = drawn(SamplingParams(temperature=1.0, seed=7), values, 30)
    assert once == drawn(SamplingParams(temperature=1.0, seed=7), values, 30)
    assert once != drawn(SamplingParams(temperature=1.0, seed=8), values, 30)


def test_without_a_seed_two_runs_differ() -> None:
    values = logits(scale=0.1)
    assert drawn(SamplingParams(temperature=1.0), values, 30) != drawn(SamplingParams(temperature=1.0), values, 30)


@pytest.mark.parametrize(
    ("params", "num_possible"),
    [
        (SamplingParams(temperature=1.0, top_k=2, seed=1), 2),
        (SamplingParams(temperature=1.0, top_p=0.65, seed=1), 2),
        (SamplingParams(temperature=1.0, min_p=0.7, seed=1), 2),
        (SamplingParams(temperature=1.0, top_p=0.8, top_k=2, seed=1), 2),
        (SamplingParams(temperature=1.0, top_k=99, seed=1), 4),
    ],
)
def test_each_limit_leaves_only_the_likeliest(params: SamplingParams, num_possible: int) -> None:
    values = np.log(np.asarray([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
    order = [1, 3, 2, 0]
    assert set(drawn(params, values, 200)) == set(order[:num_possible])


def test_frequencies_follow_the_probabilities() -> None:
    values = np.log(np.asarray([0.1, 0.6, 0.3], dtype=np.float32))
    counts = np.bincount(drawn(SamplingParams(temperature=1.0, top_p=0.95, seed=2), values, 3000), minlength=3)
    assert np.allclose(counts / 3000, [0.1, 0.6, 0.3], atol=0.04)


@given(
    values=st.lists(st.integers(-40, 40), min_size=2, max_size=60),
    scale=st.floats(0.05, 1.0),
    top_p=st.floats(0.01, 0.99),
)
def test_the_nucleus_is_mlx_lms(values: list[int], scale: float, top_p: float) -> None:
    logprobs = normalised(np.asarray(values, dtype=np.float32) * np.float32(scale))
    kept = np.flatnonzero(np.isfinite(np.asarray(MLX_LM.apply_top_p(mx.array(logprobs)[None], top_p)[0])))
    mass = np.sort(np.exp(logprobs.astype(np.float64)))[::-1].cumsum()
    if np.abs(mass - top_p).min() > 1e-5:  # nearer, and the order of summing decides
        assert nucleus(logprobs, top_p).tolist() == kept.tolist()


@pytest.mark.parametrize("scale", [0.001, 1.0, 4.0])
def test_the_nucleus_of_a_large_vocabulary_is_mlx_lms(scale: float) -> None:
    logprobs = normalised(logits(20_000, scale))
    for top_p in (0.1, 0.5, 0.9, 0.99):
        kept = np.flatnonzero(np.isfinite(np.asarray(MLX_LM.apply_top_p(mx.array(logprobs)[None], top_p)[0])))
        # float32 sums of 20,000 terms in another order: a token at the edge may fall on either side
        assert abs(len(nucleus(logprobs, top_p)) - len(kept)) <= max(2, len(kept) // 1000)


def test_the_penalty_is_mlx_lms_over_the_whole_sequence() -> None:
    tokens = [int(token) for token in RANDOM.integers(0, 500, 300)]
    process = MLX_LM.make_repetition_penalty(1.3, len(tokens))
    for _ in range(10):
        values = logits()
        expected = int(mx.argmax(process(tokens, mx.array(values)[None])[0]).item())
        assert Sampler(SamplingParams(repetition_penalty=1.3)).choose(values, tokens) == expected


def test_a_penalty_reaches_back_to_the_first_token() -> None:
    values = np.zeros(50, dtype=np.float32)
    values[4], values[9] = 2.0, 1.9
    far_back = [4, *range(20, 48)]
    assert Sampler(SamplingParams(repetition_penalty=1.2)).choose(values, far_back) == 9
    assert values[4] == np.float32(2.0), "the caller's logits stay as they were"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_make_no_token(bad: float, temperature: float) -> None:
    values = logits()
    values[17] = bad
    with pytest.raises(NonFiniteLogits, match="position 3"):
        Sampler(SamplingParams(temperature=temperature)).choose(values, [1, 2, 3])


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1.9])
@pytest.mark.parametrize("min_p", [0.0, 5e-324, 1.0])
@pytest.mark.parametrize("penalty", [0.01, 100.0])
def test_the_ends_of_the_ranges_choose_a_token(temperature: float, min_p: float, penalty: float) -> None:
    params = SamplingParams(temperature, top_p=1e-9, min_p=min_p, repetition_penalty=penalty, seed=1)
    values = logits(scale=30.0)
    assert 0 <= Sampler(params).choose(values, list(range(400))) < 500


def test_counting_penalties_and_bias_look_at_the_answer_alone() -> None:
    values = np.asarray([3.0, 2.9, 2.8, 0.0], dtype=np.float32)
    present = Sampler(SamplingParams(presence_penalty=0.15))  # one sampler is one answer
    assert [present.choose(values, [1, 2]) for _ in range(4)] == [0, 1, 0, 0]
    counting = Sampler(SamplingParams(frequency_penalty=0.15))
    assert [counting.choose(values, []) for _ in range(6)] == [0, 1, 0, 2, 1, 0]
    biased = Sampler(SamplingParams(logit_bias=((3, 100.0), (9, 5.0))))
    assert biased.choose(values, []) == 3


def test_a_mask_leaves_only_what_it_allows_and_hears_what_was_chosen() -> None:
    class Odd:
        """Allows odd tokens."""

        heard: list[int] = []  # noqa: RUF012

        def mask(self, logits: np.ndarray, tokens: list[int]) -> np.ndarray:
            assert list(tokens) == self.heard
            return np.where(np.arange(len(logits)) % 2 == 1, logits, np.float32(-np.inf))

        def accept(self, token: int) -> None:
            self.heard.append(token)

    for temperature in (0.0, 1.0):
        sampler = Sampler(SamplingParams(temperature=temperature, top_p=0.9, seed=3), mask := Odd())
        mask.heard.clear()
        chosen = [sampler.choose(logits(), []) for _ in range(20)]
        assert all(token % 2 == 1 for token in chosen) and mask.heard == chosen


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"max_tokens": 0},
        {"seed": -1},
    ],
)
def test_values_out_of_range_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=name.replace("_", "-")):
        SamplingParams(**wrong)


def test_the_embedded_models_defaults(embedded_checkpoint: Path) -> None:
    params = default_params(embedded_checkpoint)
    assert (params.temperature, params.repetition_penalty, params.max_tokens) == (0.0, 1.1, 256)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, SamplingParams()),
        ({"temperature": 0.6, "top_p": 0.9}, SamplingParams(top_p=0.9)),
        ({"do_sample": True}, SamplingParams(temperature=1.0)),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
            SamplingParams(temperature=0.6, top_p=0.95, top_k=20),
        ),
        ({"do_sample": False, "temperature": 0.6}, SamplingParams()),
        ({"do_sample": True, "temperature": None, "top_p": None}, SamplingParams(temperature=1.0)),
    ],
)
def test_defaults_come_from_the_models_file(tmp_path: Path, config: dict[str, Any], expected: SamplingParams) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert default_params(tmp_path) == expected


def test_a_given_value_wins_and_0_is_a_value() -> None:
    params = SamplingParams(temperature=0.7, max_tokens=10)
    assert override(params, temperature=0.0, top_k=None, max_tokens=20) == SamplingParams(max_tokens=20)
