"""What a measurement runs, token by token, and its figures."""

from __future__ import annotations

import numpy as np
import pytest

from streamoe_coordinator.bench.measure import Measured, Workload, forced_workload, measure, measured_json
from streamoe_coordinator.bench.words import text_workload
from streamoe_coordinator.text import Text
from streamoe_engine.telemetry import LayerCounts, Snapshot
from tests.coordinator.fake_band import VOCAB, FakeBand


def test_every_token_is_run_once_and_the_last_choice_is_not(band: FakeBand) -> None:
    seen: list[int] = []

    def choose(logits: np.ndarray, tokens: list[int]) -> int:
        seen.append(len(tokens))
        return 100 + len(tokens)

    measured = measure(band, Workload(tuple(range(10)), 3, choose))
    assert band.states[-1] == [*range(10), 110, 111, 112]
    assert band.calls == [7, 3, 1, 1, 1], "the prompt in the plan's chunks"
    assert seen == [10, 11, 12, 13]
    assert (measured.num_prompt_tokens, len(measured.step_s)) == (10, 3)
    assert measured.decode.tokens_run == 3, "counts of the decode steps only"


def test_forced_tokens_are_the_same_every_time_and_do_not_follow_the_model(band: FakeBand) -> None:
    for _ in range(2):
        measure(band, forced_workload(9, 5, VOCAB))
    assert band.states[0] == band.states[1]
    assert len(set(band.states[0])) > 9, "random tokens"


def test_a_text_of_any_length(text: Text, tmp_path) -> None:
    for length in (1, 50, 3000):
        assert len(text_workload(tmp_path, text.tokenizer, length, 1).prompt) == length


def test_figures() -> None:
    plan = FakeBand(0).plan
    counts = LayerCounts(0, picks=40, hits=20, guess_hits=10, misses=10, wasted=5, read_bytes=20 * 1024**2, wait_s=0.5)
    steps = (0.1,) * 8 + (0.2, 1.0)
    measured = Measured(plan, 20, 0.5, steps, Snapshot(1, 1, 1, 10, (counts,)))
    assert measured.tokens_per_s == pytest.approx(10)
    assert measured.prefill_tokens_per_s == 40
    assert measured.read_mib_a_token == 2
    assert measured.wait_share == pytest.approx(0.25)
    low, high = measured.tokens_per_s_spread
    assert 1 <= low < 5 < high <= 10 + 1e-9
    figures = measured_json(measured)
    assert figures["hit_rate"] == 0.5
    assert (figures["guess_hits_per_token"], figures["misses_per_token"], figures["wasted_per_token"]) == (1, 1, 0.5)
    assert Measured(plan, 1, 1.0, (0.5,), measured.decode).tokens_per_s_spread == (2, 2)
