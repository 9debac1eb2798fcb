"""A policy that lost against those of policies.py, kept for tier_sim to measure against on other models' traces.

Owns nothing a band can be opened with. See policies.Policy for what the methods mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class SecondLastUse:
    """Drops what was picked for the second-last time longest ago (LRU-K, K = 2)."""

    def __init__(self, num_keys: int) -> None:
        self._uses = np.zeros((2, num_keys), dtype=np.int64)  # last, second-last
        self._now = 0

    def tick(self, num_tokens: int) -> None:
        pass

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._now += 1
        picked = list(keys)
        self._uses[1, picked] = self._uses[0, picked]
        self._uses[0, picked] = self._now

    def worth(self, keys: np.ndarray) -> np.ndarray:
        last, second_last = self._uses[:, keys]
        return second_last * (self._now + 1) + last

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        return int(self.worth(hot_keys).argmin())
