"""Bands whose arithmetic is exact: whole numbers below 2**24 in float32, so that any mistake makes another token.

Twelve layers, each with a recurrent vector, keys that every later token sums up, and a router that picks a multiplier.
A token lost, repeated, out of order or in a wrong state changes all that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streamoe_engine.errors import ReadFailed, StateLost
from streamoe_node.ports import BandCounts, BandWant

NUM_LAYERS, WIDTH, VOCAB, CTX_TOKENS = 12, 16, 61, 64
_MASK, _EXPERTS = 4095, 4
_random = np.random.default_rng(7)
_EMBEDDING = _random.integers(0, _MASK, (VOCAB, WIDTH))
_HEAD = _random.integers(0, _MASK, (VOCAB, WIDTH))
# Odd factors, modulo a power of two: no step loses what a number says.
_SCALES = (2 * _random.integers(0, _MASK // 2, (NUM_LAYERS, _EXPERTS)) + 1).tolist()
_BIASES = list(_random.integers(0, _MASK, (NUM_LAYERS, WIDTH)))


@dataclass(slots=True)
class ToyState:
    """recurrent: (layers, width); keys: (layers, context, width)."""

    recurrent: np.ndarray
    keys: np.ndarray
    position: int = 0
    is_held: bool = True

    def copy(self) -> ToyState:
        """A state of its own."""
        return ToyState(self.recurrent.copy(), self.keys.copy(), self.position)


class ToyBand:
    """Layers first..last. before_step: told how many tokens a run has, gives the seconds it takes, or fails it."""

    ctx_tokens, vocab_size, width = CTX_TOKENS, VOCAB, WIDTH

    def __init__(
        self,
        first: int = 0,
        last: int = NUM_LAYERS - 1,
        chunk_tokens: int = 4,
        before_step: Callable[[int], float] = lambda _: 0.0,
        sleep: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.first, self.last, self.chunk_tokens = first, last, chunk_tokens
        self.is_first, self.is_last = first == 0, last == NUM_LAYERS - 1
        self._before_step, self._sleep = before_step, sleep
        self.num_held = self.tokens_run = 0

    def new_state(self) -> ToyState:
        """An empty state."""
        self.num_held += 1
        count = self.last - self.first + 1
        return ToyState(np.zeros((count, WIDTH), np.int64), np.zeros((count, CTX_TOKENS, WIDTH), np.int64))

    def run(
        self, state: Any, inputs: np.ndarray, want: BandWant, *, before_layer: Callable[[int], None] | None = None
    ) -> np.ndarray | None:
        """As a band's. A run that is stopped midway leaves the state spoiled, as a real one would."""
        assert 1 <= len(inputs) <= self.chunk_tokens
        if not state.is_held:
            raise StateLost(state.position)
        rows = _EMBEDDING[inputs] if self.is_first else inputs.astype(np.int64)
        try:
            self._wait(self._before_step(len(inputs)), before_layer)
        except BaseException:
            self._token(state, rows[0])
            raise
        rows = [self._token(state, row) for row in rows]
        self.tokens_run += len(rows)
        if want == "nothing":
            return None
        if want == "hidden":
            return np.array(rows, np.float32)
        return (_HEAD @ rows[-1] & _MASK).astype(np.float32)

    def _wait(self, seconds: float, before_layer: Callable[[int], None] | None) -> None:
        # Short steps in one piece; long ones layer by layer, so that they are seen to move.
        layers = range(self.first, self.last + 1) if seconds > 0.5 else (self.first,)
        for layer in layers:
            if before_layer is not None:
                before_layer(layer)
            if seconds:
                self._sleep(seconds / len(layers))

    def _token(self, state: ToyState, row: np.ndarray) -> np.ndarray:
        at = state.position
        for i, layer in enumerate(range(self.first, self.last + 1)):
            recurrent, keys = state.recurrent[i], state.keys[i]
            recurrent *= 3
            recurrent += row
            recurrent &= _MASK
            np.multiply(row, 2 * at + 1, out=keys[at])
            scale = _SCALES[layer][int(row[0]) % _EXPERTS]
            row = row * scale
            row += recurrent
            row += np.add.reduce(keys[: at + 1])
            row += _BIASES[layer]
            row &= _MASK
        state.position = at + 1
        return row

    def release(self, state: Any) -> None:
        """Give a state back."""
        assert state.is_held, "a state was released twice"
        state.is_held = False
        self.num_held -= 1

    def snapshot(self, state: Any) -> ToyState:
        """A copy."""
        copied: ToyState = state.copy()
        return copied

    def restore(self, snapshot: Any) -> ToyState:
        """A state as it was."""
        self.num_held += 1
        copied: ToyState = snapshot.copy()
        return copied

    def counts(self) -> BandCounts:
        """Each token reads something."""
        return BandCounts(read_bytes=100 * self.tokens_run, picks=2 * self.tokens_run, hits=self.tokens_run)


def read_failed() -> ReadFailed:
    """What a broken disk raises."""
    from pathlib import Path

    return ReadFailed(Path("model/records/layer.bin"), 0, 4096, "Input/output error")


@lru_cache(maxsize=4096)
def answer_of(prompt: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """The tokens that one band of all layers makes greedily: what every cluster must make."""
    band = ToyBand(chunk_tokens=CTX_TOKENS)
    state, made = band.new_state(), []
    logits = band.run(state, np.array(prompt), "last_logits")
    while True:
        assert logits is not None
        made.append(int(logits.argmax()))
        if len(made) == num_tokens:
            return tuple(made)
        logits = band.run(state, np.array(made[-1:]), "last_logits")
