"""The hot tier without disk and model: a recorded trace through policies and guesses, and through Belady's optimum.

Owns the replay, which does to a real Tier what record_flow does, with reads that land at once. Refuses to know how
figures are printed.

Reads are not cancelled here, so that wasted guesses are counted in full: a real reader drops those it has not begun.
Chunks are replayed without reading ahead for the layer to come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from .errors import UsageError
from .policies import POLICY_NAMES, DecayedFrequency, Policy, make_policy
from .rival_policies import SecondLastUse
from .tier import Tier, ring_slots
from .trace import Step, Trace

GuessSource = Literal["recorded", "previous-token"]
PolicyMaker = Callable[[int, int], Policy]

# By name: the engine's policies, and others to measure them against. Called with layers and keys a layer.
POLICIES: dict[str, PolicyMaker] = {
    **{name: partial(make_policy, name) for name in POLICY_NAMES},
    "lfu 0.9": lambda layers, keys: DecayedFrequency(layers * keys, 0.9),
    "lfu 0.95": lambda layers, keys: DecayedFrequency(layers * keys, 0.95),
    "lfu 0.995": lambda layers, keys: DecayedFrequency(layers * keys, 0.995),
    "lru-2": lambda layers, keys: SecondLastUse(layers * keys),
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """Records of a whole trace. picks: needed, once a token in decode and once a chunk; hits, guess_hits and misses
    sum to them. wasted: guessed and not picked. decode_reads: of reads, those while tokens ran one by one.
    """

    picks: int
    hits: int
    guess_hits: int
    misses: int
    wasted: int
    decode_reads: int

    @property
    def reads(self) -> int:
        """Records read, wasted ones too."""
        return self.misses + self.guess_hits + self.wasted

    @property
    def hit_rate(self) -> float:
        """Share of picks that needed no read."""
        return self.hits / self.picks


def replay(trace: Trace, policy: str, slots: int, guess_width: int = 0, guess: GuessSource = "recorded") -> Replayed:
    """What a band of `slots` slots would have read. policy is one of POLICIES.

    Raises UsageError for slots fewer than a token's picks and guesses.
    """
    landing = min(trace.top_k + guess_width, trace.num_experts * len(trace.layers))
    if slots < landing:
        raise UsageError(
            f"{slots} slots are too few for {trace.top_k} picks and {guess_width} guesses",
            f"use --slots {landing} or more, or smaller --widths",
        )
    layers = max(trace.layers) + 1
    sim = _Replay(POLICIES[policy](layers, trace.num_experts), slots, landing, trace, guess_width, guess)
    for step in trace.steps:
        sim.visit(step)
    return sim.counts()


class _Replay:
    def __init__(
        self, policy: Policy, slots: int, landing: int, trace: Trace, guess_width: int, guess: GuessSource
    ) -> None:
        self._policy, self._tier = policy, Tier(slots, landing, policy)
        self._num_landing, self._num_lent = landing, ring_slots(slots, landing)
        self._num_experts, self._first_layer, self._last_layer = trace.num_experts, trace.layers[0], trace.layers[-1]
        self._following = dict(zip(trace.layers, trace.layers[1:], strict=False))
        self._guess_width, self._guess = guess_width, guess
        self._last_picks: dict[int, Sequence[int]] = {}
        self._early: dict[int, int] = {}  # key -> slot, read for the layer to come
        self._picks = self._guess_hits = self._misses = self._wasted = self._decode_reads = 0

    def counts(self) -> Replayed:
        hits = self._picks - self._guess_hits - self._misses
        return Replayed(self._picks, hits, self._guess_hits, self._misses, self._wasted, self._decode_reads)

    def visit(self, step: Step) -> None:
        if step.layer == self._first_layer:
            self._policy.tick(len(step.picks))
        before = self._guess_hits + self._misses + self._wasted
        if step.is_chunk:
            self._chunk(step)
        else:
            self._token(step)
            self._decode_reads += self._guess_hits + self._misses + self._wasted - before

    def _token(self, step: Step) -> None:
        keys = self._keys(step.layer, step.picks[0].tolist())
        slots, absent = self._place(keys)
        for key in absent:
            slots[key] = self._claim(key)
        if (following := self._following.get(step.layer)) is not None:
            self._read_early(following, self._candidates(step, following))
        self._policy.count(keys, [1] * len(keys))
        for key in keys:
            self._tier.settle(slots[key])

    def _chunk(self, step: Step) -> None:
        experts, counts = np.unique(step.picks, return_counts=True)
        keys = self._keys(step.layer, experts.tolist())
        self._policy.count(keys, counts.tolist())
        if step.layer == self._first_layer:
            self._tier.lend(self._num_lent)
        slots, absent = self._place(keys)
        landing = self._claim_some(absent)
        for slot in slots.values():
            self._tier.settle(slot)
        while landing:
            for slot in landing:
                self._tier.settle(slot)
            landing = self._claim_some(absent)
        if step.layer == self._last_layer:
            self._tier.reclaim(self._num_landing)

    def _place(self, keys: Sequence[int]) -> tuple[dict[int, int], list[int]]:
        """Slots of the keys that are here, held; and the keys that are not. Wrong guesses are let go first."""
        for key in [key for key in self._early if key not in keys]:
            self._tier.give_back(self._early.pop(key))
            self._wasted += 1
        slots, absent = {}, []
        self._picks += len(keys)
        for key in keys:
            if key in self._early:
                slots[key] = self._early.pop(key)
                self._guess_hits += 1
            elif (slot := self._tier.find(key)) is not None:
                self._tier.hold(slot)
                slots[key] = slot
            else:
                absent.append(key)
        self._misses += len(absent)
        return slots, absent

    def _claim_some(self, absent: list[int]) -> list[int]:
        """Slots for the first of them, as many as may land; those are taken from the list."""
        slots = []
        while absent and (slot := self._tier.claim(absent[0])) is not None:
            slots.append(slot)
            absent.pop(0)
        return slots

    def _claim(self, key: int) -> int:
        slot = self._tier.claim(key)
        assert slot is not None, "there is a landing slot for every pick"
        return slot

    def _candidates(self, step: Step, following: int) -> Sequence[int]:
        if self._guess == "recorded":
            return step.candidates
        self._last_picks[step.layer] = step.picks[0].tolist()
        return self._last_picks.get(following, ())

    def _read_early(self, layer: int, candidates: Sequence[int]) -> None:
        for key in self._keys(layer, candidates[: self._guess_width]):
            if self._tier.find(key) is None:
                if (slot := self._tier.claim(key)) is None:
                    break
                self._early[key] = slot

    def _keys(self, layer: int, experts: Sequence[int]) -> list[int]:
        return [layer * self._num_experts + expert for expert in experts]


def belady(trace: Trace, slots: int) -> Replayed:
    """The fewest reads that any policy could have made with `slots` slots, knowing the future (Belady, 1966).

    Between two steps the slots hold any records of those that were there and those just used: the ones whose next use
    is nearest. Within a step there is room for all picks besides, so no engine can do better, whatever its order.
    """
    steps = [np.unique(step.picks).astype(np.int64) + step.layer * trace.num_experts for step in trace.steps]
    next_uses = _next_uses(steps, (max(trace.layers) + 1) * trace.num_experts)
    here: dict[int, int] = {}  # key -> its next use
    farthest: list[tuple[int, int]] = []  # heap of (-next use, key), with entries that are true no more
    misses = decode_reads = 0
    for step, keys, uses in zip(trace.steps, steps, next_uses, strict=True):
        for key, use in zip(keys.tolist(), uses.tolist(), strict=True):
            misses += key not in here
            decode_reads += key not in here and not step.is_chunk
            here[key] = use
            heapq.heappush(farthest, (-use, key))
        while len(here) > slots:
            use, key = heapq.heappop(farthest)
            if here.get(key) == -use:
                del here[key]
    picks = sum(len(keys) for keys in steps)
    return Replayed(picks, picks - misses, 0, misses, 0, decode_reads)


def _next_uses(steps: Sequence[np.ndarray], num_keys: int) -> list[np.ndarray]:
    """For each step and each of its keys, the number of the step that uses it next; len(steps) for none."""
    upcoming = np.full(num_keys, len(steps), dtype=np.int64)
    uses = []
    for number in range(len(steps) - 1, -1, -1):
        uses.append(upcoming[steps[number]])
        upcoming[steps[number]] = number
    return uses[::-1]
