"""Prompts that begin as an earlier one: its state is continued instead of computed again.

Owns the states that no answer is using (parked, whole conversations so far) and copies of states at places where
prompts are likely to part (checkpoints), these within a budget of bytes; the longest unused go first. A state is only
ever used after exactly the tokens that made it: recurrent layers cannot rewind. Refuses to know messages and text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runs_tokens import RunsSequences


@dataclass(frozen=True, slots=True)
class Claim:
    """A state to go on from, and how many of the prompt's tokens it has run: at least one is left."""

    state: Any
    position: int


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    snapshot: Any
    num_bytes: int


class PrefixStore:
    """The states of one band. budget_bytes: what checkpoints may take together, 0 for none.

    Every state comes from `claim` and goes back by `park` or `drop`; the band's own limit is never passed.
    """

    def __init__(self, band: RunsSequences, budget_bytes: int) -> None:
        self._band, self.budget_bytes = band, budget_bytes
        # Keys are the tokens as int32 bytes, so that comparing is one memcmp; the last is the one used last.
        self._parked: OrderedDict[bytes, Any] = OrderedDict()
        self._checkpoints: OrderedDict[bytes, _Checkpoint] = OrderedDict()
        self._num_claimed = 0

    @property
    def num_checkpoints(self) -> int:
        """Copies kept."""
        return len(self._checkpoints)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of the copies kept."""
        return sum(entry.num_bytes for entry in self._checkpoints.values())

    def longest(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that `claim` would find run."""
        key = _key(prompt)
        return max(map(len, (_best(self._parked, key), _best(self._checkpoints, key)))) // 4

    def has_room(self, position: int) -> bool:
        """Whether a copy after `position` tokens could be kept at all."""
        return self._band.snapshot_bytes(position) <= self.budget_bytes

    def claim(self, prompt: Sequence[int]) -> Claim:
        """A state that `prompt` continues by at least a token. Raises what the band raises."""
        key = _key(prompt)
        parked, copied = _best(self._parked, key), _best(self._checkpoints, key)
        if parked and len(parked) >= len(copied):
            state = self._parked.pop(parked)
            self._num_claimed += 1
            return Claim(state, len(parked) // 4)
        self._make_room(copied)
        if copied:
            self._checkpoints.move_to_end(copied)
            state = self._band.restore(self._checkpoints[copied].snapshot)
        else:
            state = self._band.new_state()
        self._num_claimed += 1
        return Claim(state, len(copied) // 4)

    def park(self, tokens: Sequence[int], state: Any) -> None:
        """An answer is over: keep its state, which has run exactly `tokens`, until the room is needed."""
        self._num_claimed -= 1
        earlier = self._parked.pop(key := _key(tokens), None)
        if earlier is not None:
            self._band.release(earlier)
        self._parked[key] = state

    def drop(self, state: Any) -> None:
        """An answer is over and its state is of no use, or lost."""
        self._num_claimed -= 1
        self._band.release(state)

    def checkpoint(self, tokens: Sequence[int], state: Any) -> None:
        """Copy a state that has run exactly `tokens`, if the budget has room for it once others have gone."""
        self._copy(_key(tokens), state)

    def clear(self) -> None:
        """Forget everything that is not claimed."""
        while self._parked:
            self._band.release(self._parked.popitem()[1])
        self._checkpoints.clear()

    def _make_room(self, wanted: bytes) -> None:
        # Before another state comes one must go; its copy may stay, but not in the place of the wanted one.
        if len(self._parked) + self._num_claimed < self._band.num_sequences:
            return
        assert self._parked, "more answers run than the plan has sequences for"
        key, state = self._parked.popitem(last=False)
        self._copy(key, state, wanted)
        self._band.release(state)

    def _copy(self, key: bytes, state: Any, wanted: bytes = b"") -> None:
        if key in self._checkpoints:
            self._checkpoints.move_to_end(key)
            return
        num_bytes = self._band.snapshot_bytes(len(key) // 4)
        kept_bytes = self._checkpoints[wanted].num_bytes if wanted else 0
        if num_bytes + kept_bytes > self.budget_bytes:
            return
        while self.checkpoint_bytes + num_bytes > self.budget_bytes:
            del self._checkpoints[next(other for other in self._checkpoints if other != wanted)]
        self._checkpoints[key] = _Checkpoint(self._band.snapshot(state), num_bytes)


def _key(tokens: Sequence[int]) -> bytes:
    return np.asarray(tokens, dtype=np.int32).tobytes()


def _best(entries: OrderedDict[bytes, Any], prompt: bytes) -> bytes:
    # The longest entry that the prompt continues; b"" where there is none.
    found = (key for key in entries if len(key) < len(prompt) and prompt.startswith(key))
    return max(found, key=len, default=b"")
