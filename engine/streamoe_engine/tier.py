"""Who lies in which slot: the hot tier and the landing slots.

Owns the map from expert to slot. Every slot is hot (kept, because its expert is likely to be picked again) or
landing (next to be read into, the least worth first; until then its content still counts). Admission swaps the two
roles and moves no byte. Refuses to know reads, layers and MLX.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .policies import Policy

_NOBODY = -1
# Slots lent to a chunk, where there are twice as many hot ones: 0.2 GiB of records at Qwen3.6's size, as much as the
# disk reads while a layer of a long chunk attends.
RING_SLOTS = 128


def ring_slots(num_slots: int, num_landing: int) -> int:
    """How many hot slots a tier of these sizes lends to a chunk."""
    return min(RING_SLOTS, (num_slots - num_landing) // 2)


class Tier:
    """num_slots slots, of which num_landing are landing at any time; `policy` decides who is hot."""

    def __init__(self, num_slots: int, num_landing: int, policy: Policy) -> None:
        assert 0 < num_landing <= num_slots, (num_landing, num_slots)
        self._policy = policy
        self._slot_of: dict[int, int] = {}
        self._key_of = [_NOBODY] * num_slots
        self._landing = list(range(num_landing))
        self._hot_slots = list(range(num_landing, num_slots))
        self._hot_keys = np.full(len(self._hot_slots), _NOBODY, dtype=np.int64)
        self._hot_position = {slot: position for position, slot in enumerate(self._hot_slots)}
        self._empty = list(range(len(self._hot_slots)))[::-1]

    def find(self, key: int) -> int | None:
        """The slot that holds this expert, or None."""
        return self._slot_of.get(key)

    def hold_all(self, keys: Sequence[int]) -> list[int]:
        """The slot of each expert, held; -1 of those that are not here."""
        slots = [self._slot_of.get(key, -1) for key in keys]
        for slot in slots:
            if slot >= 0 and slot not in self._hot_position:
                self.hold(slot)
        return slots

    def hold(self, slot: int) -> None:
        """Keep a slot from being claimed until it is settled or given back."""
        if slot not in self._hot_position and slot in self._landing:
            self._landing.remove(slot)

    def claim(self, key: int) -> int | None:
        """A landing slot, empty or of least worth, now `key`'s; None when all are held. What lay there is forgotten."""
        return next(iter(self.claim_all([key])), None)

    def claim_all(self, keys: Sequence[int]) -> list[int]:
        """Landing slots for the first of these experts, as many as there are: claimed one after the other."""
        slots = self._cheapest(min(len(keys), len(self._landing)))
        for slot, key in zip(slots, keys, strict=False):
            self._landing.remove(slot)
            self.forget(slot)
            self._slot_of[key], self._key_of[slot] = slot, key
        return slots

    def forget(self, slot: int) -> None:
        """The slot's content is no expert any more."""
        if (key := self._key_of[slot]) != _NOBODY:
            del self._slot_of[key]
            self._key_of[slot] = _NOBODY

    def give_back(self, slot: int) -> None:
        """A held landing slot that was not used: it may be claimed again."""
        self._landing.append(slot)

    def forget_landing(self) -> None:
        """Every slot that is not hot is landing again and holds nothing: the way back after a failed read."""
        self._landing = [slot for slot in range(len(self._key_of)) if slot not in self._hot_position]
        for slot in self._landing:
            self.forget(slot)

    def settle_all(self, slots: Sequence[int]) -> None:
        """Settle the slots of one step."""
        hot = self._hot_position
        for slot in slots:
            if slot not in hot:  # looked at anew each time: settling one may drop another
                self.settle(slot)

    def settle(self, slot: int) -> None:
        """A held slot has been used: keep it hot if its expert deserves it, else let it land again.

        The hot slots held for one step are all settled before anything is claimed: until then each may be dropped
        for another of the same step.
        """
        if slot in self._hot_position or slot in self._landing:  # the latter: just dropped for another of its batch
            return
        position = self._empty.pop() if self._empty else self._victim(self._key_of[slot])
        if position is None:
            self._landing.append(slot)
            return
        dropped = self._hot_slots[position]
        del self._hot_position[dropped]
        self._hot_slots[position], self._hot_keys[position] = slot, self._key_of[slot]
        self._hot_position[slot] = position
        self._landing.append(dropped)

    def lend(self, count: int) -> None:
        """For a prompt: make up to `count` hot slots landing, empty ones first, then those of least worth.

        Their content still counts until it is read over.
        """
        positions = self._by_worth()[: min(count, len(self._hot_slots))]
        self._landing += [self._hot_slots[position] for position in positions]
        self._keep_hot(sorted(set(range(len(self._hot_slots))) - set(positions)), [])

    def reclaim(self, num_landing: int) -> None:
        """After a prompt: leave num_landing slots landing; the others, of most worth, are hot again."""
        keys = [self._key_of[slot] for slot in self._landing]
        worth = self._policy.worth(np.maximum(keys, 0)) if keys else np.empty(0)
        order = sorted(range(len(keys)), key=lambda at: (keys[at] != _NOBODY, worth[at]))
        back = [self._landing[at] for at in order[num_landing:]]
        self._landing = [self._landing[at] for at in order[:num_landing]]
        self._keep_hot(list(range(len(self._hot_slots))), back)

    def _by_worth(self) -> list[int]:
        """Hot positions, the empty ones first, then the least worthy."""
        empty = set(self._empty)
        full = [position for position in range(len(self._hot_slots)) if position not in empty]
        worth = self._policy.worth(self._hot_keys[full]) if full else np.empty(0)
        return sorted(empty) + [full[at] for at in np.argsort(worth, kind="stable").tolist()]

    def _keep_hot(self, positions: list[int], more: list[int]) -> None:
        """The hot slots are those at `positions` and the slots `more`."""
        self._hot_slots = [self._hot_slots[position] for position in positions] + more
        keys = [self._key_of[slot] for slot in self._hot_slots]
        self._hot_keys = np.array(keys, dtype=np.int64)
        self._hot_position = {slot: position for position, slot in enumerate(self._hot_slots)}
        self._empty = [position for position, key in enumerate(keys) if key == _NOBODY][::-1]

    def _cheapest(self, count: int) -> list[int]:
        """Landing slots, empty ones first, then those of least worth; the oldest of equals."""
        keys = [self._key_of[slot] for slot in self._landing]
        cheapest = [slot for slot, key in zip(self._landing, keys, strict=True) if key == _NOBODY][:count]
        if len(cheapest) < count:
            full = [slot for slot, key in zip(self._landing, keys, strict=True) if key != _NOBODY]
            worth = self._policy.worth(np.array([self._key_of[slot] for slot in full]))
            cheapest += [full[at] for at in worth.argsort(kind="stable")[: count - len(cheapest)].tolist()]
        return cheapest

    def _victim(self, key: int) -> int | None:
        return self._policy.victim(self._hot_keys, key) if self._hot_slots else None
