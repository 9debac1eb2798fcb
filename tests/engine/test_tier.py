"""The tier as a machine: whatever is done to it, no slot serves two experts and none is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamoe_engine.policies import POLICY_NAMES, ExpectedNextUse, make_policy
from streamoe_engine.tier import Tier

NUM_KEYS = 12


class TierMachine(RuleBasedStateMachine):
    """Random steps of a layer: hold hits, claim for misses, settle or give back, forget."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = make_policy("lfu", 1, NUM_KEYS)
        self.tier = Tier(7, 3, self.policy)
        self.held: dict[int, int] = {}  # slot -> key
        self.content: dict[int, int] = {}  # slot -> key, what was last read into it

    @rule(key=st.integers(0, NUM_KEYS - 1))
    def pick(self, key: int) -> None:
        self.policy.count([key], [1])
        slot = self.tier.find(key)
        if slot is not None:
            self.tier.hold(slot)
        elif (slot := self.tier.claim(key)) is not None:
            assert slot not in self.held, "a held slot is never claimed"
            self.content[slot] = key
        else:
            return
        assert self.content[slot] == key
        self.held[slot] = key

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """A wrong guess: claimed, never used, so never hot."""
        unused = sorted(slot for slot in self.held if slot not in self.tier._hot_position)
        if unused:
            slot = data.draw(st.sampled_from(unused))
            del self.held[slot]
            self.tier.give_back(slot)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle_a_batch(self, data: st.DataObject) -> None:
        """Callers settle all hits of a step together, with some or all of what they claimed, in any order: a hot
        pick may be dropped for another of its batch, but nothing is claimed before the whole batch is settled."""
        hits = [slot for slot in self.held if slot in self.tier._hot_position]
        claimed = [slot for slot in self.held if slot not in self.tier._hot_position]
        landed = data.draw(st.lists(st.sampled_from(claimed), unique=True)) if claimed else []
        for slot in data.draw(st.permutations(hits + landed)):
            del self.held[slot]
            self.tier.settle(slot)

    @rule()
    def fail(self) -> None:
        self.tier.forget_landing()
        self.held.clear()
        assert len(self.tier._landing) == 3

    @invariant()
    def every_slot_has_one_role(self) -> None:
        hot, landing = set(self.tier._hot_slots), list(self.tier._landing)
        held = set(self.held) - hot
        assert len(landing) == len(set(landing)), "a slot lands once"
        assert not hot & set(landing)
        assert not held & set(landing)
        assert hot | set(landing) | held == set(range(7))
        assert len(hot) == 4

    @invariant()
    def the_map_is_true(self) -> None:
        for key, slot in self.tier._slot_of.items():
            assert self.content[slot] == key


TestTierMachine = TierMachine.TestCase
TestTierMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_empty_hot_slots_are_filled_before_anyone_is_dropped(name) -> None:
    policy = make_policy(name, 1, NUM_KEYS)
    tier = Tier(6, 2, policy)
    for key in range(6):
        policy.count([key], [1])
        tier.settle(tier.claim(key))
    assert sum(tier.find(key) is not None for key in range(6)) == 6


def test_lru_drops_the_oldest_and_lfu_the_rarest() -> None:
    lru, lfu = make_policy("lru", 1, 4), make_policy("lfu", 1, 4)
    for policy in (lru, lfu):
        policy.count([0], [5])
        policy.tick(1)
        policy.count([1], [1])
        policy.tick(1)
        policy.count([2], [2])
    hot = np.array([0, 1])
    assert lru.victim(hot, 2) == 0
    assert lfu.victim(hot, 2) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=200), st.floats(0.5, 0.999))
def test_decayed_frequency_ranks_as_its_definition(picks: list[tuple[int, int]], decay: float) -> None:
    """A pick t ticks ago weighs decay ** t; the implementation grows new picks instead."""
    from streamoe_engine.policies import DecayedFrequency

    policy, expected = DecayedFrequency(10, decay), np.zeros(10)
    for key, weight in picks:
        expected *= decay
        policy.tick(1)
        expected[key] += weight
        policy.count([key], [weight])
    scores = policy._score / policy._pick_weight
    assert np.allclose(scores, expected, rtol=1e-9, atol=1e-12)


def test_counts_do_not_overflow_over_a_long_run() -> None:
    policy = make_policy("lfu", 1, 2)
    for _ in range(60_000):
        policy.tick(1)
        policy.count([0], [1])
    policy.count([1], [1])
    assert policy.victim(np.array([0]), 1) is None


def next_use(num_layers: int = 3, keys_a_layer: int = 4) -> ExpectedNextUse:
    return ExpectedNextUse(num_layers, keys_a_layer)


def test_next_use_keeps_what_is_picked_often_and_comes_soon() -> None:
    policy = next_use()
    for turn in range(40):
        policy.tick(1)
        for layer in range(3):
            often, rare = 4 * layer, 4 * layer + 1
            policy.count([often, rare if turn % 4 == 0 else 4 * layer + 2], [1, 1])
    hot = np.array([0, 1, 4, 5, 8, 9])  # often and rare, by layer
    order = np.argsort(policy.worth(hot)).tolist()
    assert {hot[at] for at in order[:3]} == {1, 5, 9}, "rare ones go first"
    # Layer 2 has just been visited, so layer 0 is next: of equally likely experts its own comes back first.
    assert [hot[at] for at in order[3:]] == [8, 4, 0]
    assert policy.victim(hot, 0) in (1, 3, 5)
    assert policy.victim(np.array([0, 4]), 9) is None, "a rare newcomer replaces nobody"


def test_next_use_keeps_a_part_of_a_loop_that_recency_loses() -> None:
    """Ten experts in turn through a tier of six: the least recently used is always the next one needed."""
    hits = {}
    for name in ("lru", "next-use"):
        policy = make_policy(name, 10, 1)
        tier, hits[name] = Tier(6, 1, policy), 0
        for _ in range(30):
            policy.tick(1)
            for key in range(10):
                slot = tier.find(key)
                hits[name] += slot is not None
                if slot is None:
                    slot = tier.claim(key)
                else:
                    tier.hold(slot)
                policy.count([key], [1])
                tier.settle(slot)
    assert hits["lru"] == 0
    assert hits["next-use"] >= 30 * 4


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True))))
def test_next_use_stays_a_mixture_of_rates(chunks: list[tuple[int, list[int]]]) -> None:
    policy = next_use()
    for num_tokens, picks in chunks:
        policy.tick(num_tokens)
        for layer in range(3):
            policy.count([4 * layer + pick for pick in picks], [num_tokens] * len(picks))
    assert (policy._weights >= policy.LEAST_WEIGHT).all()
    assert policy._weights.sum() <= 1 + len(policy._weights) * policy.LEAST_WEIGHT
    assert ((policy._rates >= 0) & (policy._rates <= 1)).all()
    if chunks:
        assert np.isfinite(policy.worth(np.arange(12))).all()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True), min_size=1, max_size=40))
def test_next_uses_rates_are_their_definition(visits: list[list[int]]) -> None:
    policy, expected = next_use(1), np.zeros((len(ExpectedNextUse.KEEP_A_TOKEN), 4))
    for picks in visits:
        policy.tick(1)
        policy.count(picks, [1] * len(picks))
        for row, keep in enumerate(ExpectedNextUse.KEEP_A_TOKEN):
            expected[row] *= keep
            expected[row, picks] += 1 - keep
    assert np.allclose(policy._rates[:, 0], expected)
    chance = policy._weights @ expected + policy.NEVER_SEEN_SHARE * len(visits[-1]) / 4
    # One layer: a turn is one visit, and 1 / chance of them pass on average until the next use.
    assert np.allclose(policy.worth(np.arange(4)), -(len(visits) + 1 / chance))


def test_a_claim_takes_an_empty_landing_slot_then_the_least_worth() -> None:
    policy = make_policy("lru", 1, 8)
    tier = Tier(5, 3, policy)
    first = [tier.claim(key) for key in (0, 1, 2)]
    for key, slot in zip((0, 1, 2), first, strict=True):
        policy.count([key], [1])
        tier.settle(slot)  # 0 and 1 become hot in the empty slots' place
    assert [tier.find(key) is not None for key in (0, 1, 2)] == [True] * 3
    policy.count([2], [1])
    tier.claim(5), tier.claim(6)
    assert tier.find(2) is not None, "the empty slots went first"
    tier.claim(7)
    assert sum(tier.find(key) is not None for key in (0, 1, 2)) == 2


@pytest.mark.parametrize("name", POLICY_NAMES)
@settings(max_examples=40, deadline=None)
@given(
    tokens=st.lists(st.lists(st.integers(0, NUM_KEYS - 1), min_size=3, max_size=3, unique=True), max_size=40),
    lends=st.integers(0, 4),
)
def test_no_slot_lands_twice_when_picks_of_a_token_displace_each_other(
    name: str, tokens: list[list[int]], lends: int
) -> None:
    """A pick that is hot may be dropped for another pick of the same token before it is settled itself."""
    policy = make_policy(name, 1, NUM_KEYS)
    tier = Tier(7, 3, policy)
    for keys in tokens:
        tier.lend(lends)
        policy.tick(1)
        slots = {key: slot for key in keys if (slot := tier.find(key)) is not None}
        for slot in slots.values():
            tier.hold(slot)
        for key in keys:
            if key not in slots:
                slots[key] = tier.claim(key)
        assert None not in slots.values() and len(set(slots.values())) == 3
        policy.count(keys, [1] * 3)
        for key in keys:
            tier.settle(slots[key])
        assert sorted(tier._landing + tier._hot_slots) == list(range(7)), "each slot has one role"
        tier.reclaim(3)
        assert sorted(tier._landing + tier._hot_slots) == list(range(7))
