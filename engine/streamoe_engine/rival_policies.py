"""Policies that lost against those of policies.py, kept for tier_sim to measure against on other models' traces.

Owns nothing a band can be opened with. See policies.Policy for what the methods mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .policies import LeastRecentlyUsed


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


class LayerByLayerRecency(LeastRecentlyUsed):
    """Least recently used within the layer of the newcomer, so that every layer keeps the share it began with."""

    def __init__(self, num_layers: int, keys_a_layer: int) -> None:
        super().__init__(num_layers * keys_a_layer)
        self._keys_a_layer = keys_a_layer

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        own = np.flatnonzero(hot_keys // self._keys_a_layer == key // self._keys_a_layer)
        return int(own[self.worth(hot_keys[own]).argmin()]) if len(own) else None
