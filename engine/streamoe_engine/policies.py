"""Which expert deserves a hot slot: policies behind one interface, judged on counts alone.

Owns the scores of all experts, resident or not. Refuses to know slots and reads.
A key is layer number times experts a layer plus expert number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

PolicyName = Literal["lru", "lfu", "sampled"]
POLICY_NAMES: tuple[PolicyName, ...] = ("lru", "lfu", "sampled")


class Policy(Protocol):
    """Scores picks and names victims."""

    def tick(self) -> None:
        """A new chunk of tokens begins."""

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        """These experts were picked, each by `weight` tokens of the chunk."""

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        """Position in hot_keys (num_hot,) int64 of the expert to drop for `key`; None to leave all as they are."""


class LeastRecentlyUsed:
    """Keeps what was picked last. Best where use is nearly even but local in time (the embedded model)."""

    def __init__(self, num_keys: int) -> None:
        self._last_use = np.zeros(num_keys, dtype=np.int64)
        self._now = 0

    def tick(self) -> None:
        pass

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._now += 1
        self._last_use[list(keys)] = self._now

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        return int(self._last_use[hot_keys].argmin())


class DecayedFrequency:
    """Keeps what was picked most, older picks counting less: a pick t chunks ago weighs decay ** t."""

    def __init__(self, num_keys: int, decay: float = 0.99) -> None:
        self._score = np.zeros(num_keys, dtype=np.float64)
        self._decay = decay
        # New picks grow instead of old ones shrinking: the same order, without touching every score.
        self._pick_weight = 1.0

    def tick(self) -> None:
        self._pick_weight /= self._decay
        if self._pick_weight > 1e100:
            self._score /= self._pick_weight
            self._pick_weight = 1.0

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._score[list(keys)] += np.asarray(weights) * self._pick_weight

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        scores = self._score[hot_keys]
        coldest = int(scores.argmin())
        return coldest if self._score[key] > scores[coldest] else None


class SampledCount:
    """Admits a pick whose count is above that of the coldest of a few sampled experts (the first seed's rule)."""

    def __init__(self, num_keys: int, seed: int = 0, sample: int = 8) -> None:
        self._count = np.zeros(num_keys, dtype=np.int64)
        self._random = np.random.default_rng(seed)
        self._sample = sample

    def tick(self) -> None:
        pass

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._count[list(keys)] += np.asarray(weights)

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        sampled = self._random.integers(len(hot_keys), size=self._sample)
        counts = self._count[hot_keys[sampled]]
        coldest = int(counts.argmin())
        return int(sampled[coldest]) if self._count[key] > counts[coldest] else None


def make_policy(name: PolicyName, num_keys: int) -> Policy:
    """The policy of that name over keys 0..num_keys-1."""
    kinds = {"lru": LeastRecentlyUsed, "lfu": DecayedFrequency, "sampled": SampledCount}
    return kinds[name](num_keys)
