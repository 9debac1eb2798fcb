"""Hot slots lent to a prompt come back: nothing is lost, the most worthy content stays, and the ring is longer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_engine.policies import POLICY_NAMES, make_policy
from streamoe_engine.tier import Tier

NUM_KEYS = 40


def filled(name: str, num_slots: int, num_landing: int, keys: list[int]) -> Tier:
    policy = make_policy(name, 4, NUM_KEYS // 4)  # type: ignore[arg-type]
    tier = Tier(num_slots, num_landing, policy)
    for key in keys:
        policy.tick(1)
        policy.count([key], [1])
        if (slot := tier.find(key)) is None:
            slot = tier.claim(key)
            assert slot is not None
        else:
            tier.hold(slot)
        tier.settle(slot)
    return tier


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(
    keys=st.lists(st.integers(0, NUM_KEYS - 1), max_size=60),
    count=st.integers(0, 30),
    flow=st.lists(st.integers(0, NUM_KEYS - 1), max_size=20),
)
def test_roles_and_contents_survive_a_prompt(name: str, keys: list[int], count: int, flow: list[int]) -> None:
    tier = filled(name, 20, 4, keys)
    before = dict(tier._slot_of)
    tier.lend(count)
    assert len(tier._landing) == 4 + min(count, 16)
    assert tier._slot_of == before, "lending forgets nothing"
    for key in flow:
        if tier.find(key) is None:
            slot = tier.claim(key)
            assert slot is not None
            tier.settle(slot)
    known = dict(tier._slot_of)
    tier.reclaim(4)
    assert len(tier._landing) == 4
    assert tier._slot_of == known, "reclaiming forgets nothing"
    assert sorted(tier._hot_slots + tier._landing) == list(range(20))
    assert [tier._key_of[slot] for slot in tier._hot_slots] == tier._hot_keys.tolist()
    assert {tier._hot_slots[p] for p in tier._empty} == {s for s in tier._hot_slots if tier._key_of[s] < 0}


def test_the_least_worthy_are_lent_and_the_most_worthy_come_back() -> None:
    tier = filled("lru", 8, 2, list(range(8)))
    tier.lend(3)
    lent = [tier._key_of[slot] for slot in tier._landing]
    hot = [tier._key_of[slot] for slot in tier._hot_slots]
    assert max(key for key in lent if key >= 0) < max(hot)
    tier.reclaim(2)
    landing = np.array([tier._key_of[slot] for slot in tier._landing])
    assert landing.max() < min(tier._key_of[slot] for slot in tier._hot_slots)
