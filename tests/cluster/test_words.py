"""A sampler makes the same tokens of what travels as of all logits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.words import dense, words_wanted
from streamoe_coordinator.sampling import Sampler, SamplingParams
from streamoe_node.top_words import top_words

GREEDY = SamplingParams()
# Few values, so that ties are common.
LOGITS = st.lists(st.sampled_from((-3e4, -2.0, 0.0, 0.5, 0.5000001, 7.0, 3e4)), min_size=2, max_size=40)


@given(st.lists(LOGITS, min_size=1, max_size=5), st.integers(0, 9), st.sampled_from((1.0, 0.5)), st.integers(0, 3))
def test_one_word_makes_the_token_of_all_logits(rows: list[list[float]], seed: int, top_p: float, top_k: int):
    params = SamplingParams(seed=seed, top_p=top_p, top_k=top_k)
    count = words_wanted(params)
    assert count == 1
    whole, short = Sampler(params), Sampler(params)
    tokens = [0]
    for row in rows:
        logits = np.array(row, np.float32)
        chosen = whole.choose(logits, tokens)
        assert short.choose(dense(top_words(logits, count), len(logits)), tokens) == chosen
        tokens.append(chosen)


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.7},
        {"temperature": 0.7, "top_k": 20},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"logit_bias": ((3, 5.0),)},
    ],
)
def test_samplers_that_look_further_get_all_logits(changed: dict[str, object]):
    assert words_wanted(dataclasses.replace(GREEDY, **changed)) is None  # type: ignore[arg-type]


def test_a_mask_looks_further():
    assert words_wanted(GREEDY, has_mask=True) is None


def test_every_parameter_is_judged():
    """A parameter that this list does not know may change what a sampler looks at: think, then add it."""
    assert {field.name for field in dataclasses.fields(SamplingParams)} == {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "max_tokens",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
    }


def test_the_dense_vector_is_finite_and_true_where_it_can_be():
    logits = np.array([1.0, 5.0, 3.0, 5.0], np.float32)
    made = dense(top_words(logits, 3), 4)
    assert np.isfinite(made).all() and made.dtype == np.float32
    assert np.array_equal(made[1:], logits[1:]) and made[0] < -1e38
