"""Which expert deserves a hot slot: policies behind one interface, judged on picks alone.

Owns the scores of all experts, resident or not. Refuses to know slots and reads.
A key is layer number times experts a layer plus expert number. `streamoe tier-sim` compares the policies on recorded
traces (docs/lab-log.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

PolicyName = Literal["next-use", "lru", "lfu", "sampled"]
POLICY_NAMES: tuple[PolicyName, ...] = ("next-use", "lru", "lfu", "sampled")


class Policy(Protocol):
    """Scores picks and names victims."""

    def tick(self, num_tokens: int) -> None:
        """A new chunk of num_tokens tokens enters the first layer."""

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        """These experts of one layer were picked, each by `weight` tokens of the chunk."""

    def worth(self, keys: np.ndarray) -> np.ndarray:
        """How much these experts deserve to stay, (num_keys,) int64 to (num_keys,): only the order means anything."""

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        """Position in hot_keys (num_hot,) int64 of the expert to drop for `key`; None to leave all as they are."""


class LeastRecentlyUsed:
    """Keeps what was picked last. Best where use is nearly even but local in time (the embedded model)."""

    def __init__(self, num_keys: int) -> None:
        self._last_use = np.zeros(num_keys, dtype=np.int64)
        self._now = 0

    def tick(self, num_tokens: int) -> None:
        pass

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._now += 1
        self._last_use[list(keys)] = self._now

    def worth(self, keys: np.ndarray) -> np.ndarray:
        return self._last_use[keys]

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        return int(self._last_use[hot_keys].argmin())


class DecayedFrequency:
    """Keeps what was picked most, older picks counting less: a pick t chunks ago weighs decay ** t."""

    def __init__(self, num_keys: int, decay: float = 0.99) -> None:
        self._score = np.zeros(num_keys, dtype=np.float64)
        self._decay = decay
        # New picks grow instead of old ones shrinking: the same order, without touching every score.
        self._pick_weight = 1.0

    def tick(self, num_tokens: int) -> None:
        self._pick_weight /= self._decay
        if self._pick_weight > 1e100:
            self._score /= self._pick_weight
            self._pick_weight = 1.0

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._score[list(keys)] += np.asarray(weights) * self._pick_weight

    def worth(self, keys: np.ndarray) -> np.ndarray:
        return self._score[keys]

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

    def tick(self, num_tokens: int) -> None:
        pass

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._count[list(keys)] += np.asarray(weights)

    def worth(self, keys: np.ndarray) -> np.ndarray:
        return self._count[keys]

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        sampled = self._random.integers(len(hot_keys), size=self._sample)
        counts = self._count[hot_keys[sampled]]
        coldest = int(counts.argmin())
        return int(sampled[coldest]) if self._count[key] > counts[coldest] else None


class ExpectedNextUse:
    """Keeps what is needed soonest: Belady's rule, with an expectation for the future that nobody knows.

    Layers take turns, so the next chance of an expert is known: the next visit of its layer. Picked with probability p
    at each visit, it waits for 1/p visits on average. p mixes pick rates that forget at several speeds; the mixture
    moves towards the speed that foretells best (exponentiated gradient on the squared error), so that steady and
    changeable models need no setting. Times are visits of layers since the start: a key's value stays true until its
    layer is visited again, and nothing but that layer is recomputed.
    """

    # What a rate keeps of itself over a token: from "as the token before" to some 200 tokens.
    KEEP_A_TOKEN = (0.4, 0.85, 0.97, 0.995)
    # Flat around its best: from 0.05 to 0.2 all change reads by less than 1 %.
    LEARNING_RATE = 0.1
    # No speed is ever forgotten, for the kind of text may change.
    LEAST_WEIGHT = 0.02
    # Added to each p, as a share of the mean: an expert never seen waits long but not for ever.
    NEVER_SEEN_SHARE = 0.1

    def __init__(self, num_layers: int, keys_a_layer: int) -> None:
        self._keep = np.array(self.KEEP_A_TOKEN)[:, None]
        num_speeds = len(self.KEEP_A_TOKEN)
        self._weights = np.full(num_speeds, 1 / num_speeds)
        self._rates = np.zeros((num_speeds, num_layers, keys_a_layer))
        self._next_use = np.full(num_layers * keys_a_layer, np.inf)
        self._visits_a_turn, self._turn_start, self._now = num_layers, 0, 0
        self._num_tokens, self._kept, self._keys_a_layer = 1, self._keep, keys_a_layer

    def tick(self, num_tokens: int) -> None:
        # A band visits its own expert layers only: how many is learned from the turn before.
        self._visits_a_turn = self._now - self._turn_start or self._visits_a_turn
        self._turn_start, self._num_tokens, self._kept = self._now, num_tokens, self._keep**num_tokens

    def count(self, keys: Sequence[int], weights: Sequence[int]) -> None:
        self._now += 1
        layer = keys[0] // self._keys_a_layer
        first = layer * self._keys_a_layer
        experts = np.array(keys) - first
        picked = np.array(weights) / self._num_tokens
        rates = self._rates[:, layer]  # a view
        # The squared error of the mixture, by speed: rates @ (picked - weights @ rates), without the zeros of picked.
        foretold = self._weights @ rates
        blame = rates[:, experts] @ picked - rates @ foretold
        self._weights *= np.exp(self.LEARNING_RATE * blame)
        self._weights /= self._weights.sum()
        np.maximum(self._weights, self.LEAST_WEIGHT, out=self._weights)
        rates *= self._kept
        rates[:, experts] += (1 - self._kept) * picked
        chance = self._weights @ rates
        chance += self.NEVER_SEEN_SHARE * float(picked.sum()) / self._keys_a_layer
        next_use = self._next_use[first : first + self._keys_a_layer]
        np.divide(self._visits_a_turn, chance, out=next_use)
        next_use += self._now

    def worth(self, keys: np.ndarray) -> np.ndarray:
        return -self._next_use[keys]

    def victim(self, hot_keys: np.ndarray, key: int) -> int | None:
        next_use = self._next_use[hot_keys]
        latest = int(next_use.argmax())
        return latest if self._next_use[key] < next_use[latest] else None


def make_policy(name: PolicyName, num_layers: int, keys_a_layer: int) -> Policy:
    """The policy of that name over keys 0..num_layers * keys_a_layer - 1."""
    num_keys = num_layers * keys_a_layer
    makers: dict[PolicyName, Callable[[], Policy]] = {
        "next-use": lambda: ExpectedNextUse(num_layers, keys_a_layer),
        "lru": lambda: LeastRecentlyUsed(num_keys),
        "lfu": lambda: DecayedFrequency(num_keys),
        "sampled": lambda: SampledCount(num_keys),
    }
    return makers[name]()
