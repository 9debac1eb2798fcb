"""The simulator against the engine it stands for, and Belady's optimum against everything."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine.errors import UsageError
from streamoe_engine.policies import POLICY_NAMES
from streamoe_engine.tier_sim import POLICIES, belady, replay
from streamoe_engine.trace import Trace, TraceRecorder
from tests.engine.test_trace import LAYERS, NUM_EXPERTS, TOP_K, traces
from tests.running import open_band

NUM_KEYS = NUM_EXPERTS * len(LAYERS)


@settings(max_examples=60, deadline=None)
@given(
    trace=traces(),
    policy=st.sampled_from(sorted(POLICIES)),
    slots=st.integers(TOP_K + 3, NUM_KEYS),
    width=st.integers(0, 3),
    guess=st.sampled_from(["recorded", "previous-token"]),
)
def test_no_policy_reads_less_than_belady(trace: Trace, policy: str, slots: int, width: int, guess: str) -> None:
    best, replayed = belady(trace, slots), replay(trace, policy, slots, width, guess)  # type: ignore[arg-type]
    assert replayed.picks == best.picks == best.hits + best.misses
    assert replayed.picks == replayed.hits + replayed.guess_hits + replayed.misses
    assert replayed.reads >= best.reads
    assert replayed.reads >= replayed.decode_reads


@given(trace=traces(), slots=st.integers(TOP_K, NUM_KEYS))
def test_more_slots_never_cost_belady_a_read(trace: Trace, slots: int) -> None:
    assert belady(trace, slots).reads >= belady(trace, slots + 1).reads


@given(trace=traces(), policy=st.sampled_from(sorted(POLICIES)))
def test_with_a_slot_for_every_expert_each_is_read_once(trace: Trace, policy: str) -> None:
    used = {(step.layer, expert) for step in trace.steps for expert in step.picks.reshape(-1).tolist()}
    assert replay(trace, policy, NUM_KEYS).reads == belady(trace, NUM_KEYS).reads == len(used)


@settings(max_examples=40, deadline=None)
@given(
    visits=st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=2, unique=True), min_size=1, max_size=7),
    slots=st.integers(2, 4),
)
def test_belady_is_the_best_of_all_ways_to_keep(visits: list[list[int]], slots: int) -> None:
    """Against trying every set of records that may be kept after every step."""

    @cache
    def fewest(number: int, kept: frozenset[int]) -> int:
        if number == len(visits):
            return 0
        picks = frozenset(visits[number])
        there = kept | picks
        ways = [there] if len(there) <= slots else map(frozenset, combinations(sorted(there), slots))
        return len(picks - kept) + min(fewest(number + 1, way) for way in ways)

    recorder = TraceRecorder()
    for picks in visits:
        recorder.token(0, picks, [])
    assert belady(recorder.trace(5), slots).reads == fewest(0, frozenset())


def test_a_wrong_guess_is_a_read_and_a_right_one_replaces_a_miss() -> None:
    recorder = TraceRecorder()
    recorder.token(0, [0, 1], [5, 6])
    recorder.token(1, [5, 7], [])
    guessed = replay(recorder.trace(9), "lru", 6, 2)
    assert (guessed.guess_hits, guessed.misses, guessed.wasted, guessed.reads) == (1, 3, 1, 5)
    assert replay(recorder.trace(9), "lru", 6, 1).wasted == 0


def test_too_few_slots_are_refused_with_the_number_that_would_do() -> None:
    recorder = TraceRecorder()
    recorder.token(0, [0, 1], [])
    with pytest.raises(UsageError, match="--slots 5"):
        replay(recorder.trace(9), "lru", 4, 3)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_the_simulator_counts_what_the_engine_counts(embedded_folder: Path, policy: str) -> None:
    """The embedded model at a few slots: two prompts, tokens after each.

    Nothing depends on timing: no guesses, records that land in order, and a ring with room for a layer's experts.
    """
    recorder = TraceRecorder()
    ids = np.random.default_rng(1).integers(1000, 20_000, size=34).astype(np.int32)
    options = {"guess": "none", "guess_width": 0, "policy": policy, "recorder": recorder, "reader_threads": 1}
    with open_band(embedded_folder, 60, **options) as band:
        state = band.new_state()
        for part in np.split(ids, [10, *range(11, 20), 26, *range(27, 34)]):
            band.run(state, part, "nothing")
        counts, slots, num_experts = band.telemetry(), band.plan.slots, band.manifest.experts[0].num_experts
    replayed = replay(recorder.trace(num_experts), policy, slots)
    names = ("picks", "hits", "guess_hits", "misses", "wasted")
    assert {name: getattr(replayed, name) for name in names} == {name: counts.total(name) for name in names}
    assert 0 < replayed.hits < replayed.picks, "a run that tells"
