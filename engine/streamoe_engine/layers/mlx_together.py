"""One token of each of several sequences through one layer of mlx-lm's, experts read once for all of them.

Owns the meeting of the sequences at a layer's experts. mlx-lm's layer calls its expert module in its own middle, so
each sequence's call is answered with an array still to be filled, which it builds on lazily; when all have called,
the products are computed together and written into those arrays, before anything that needs them is evaluated. Refuses
to know layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from ..experts import ExpertStreamer
from ..guess import Guesser
from .together_guess import shared_candidates


@dataclass(frozen=True, slots=True)
class _Call:
    """One sequence's call: its input (1, width), picks (k,), scores (experts,), and where its products shall be."""

    x: mx.array
    picks: np.ndarray
    scores: np.ndarray | None
    products: np.ndarray


class Meeting:
    """Where the sequences of a joint step meet, layer by layer; shared by all expert modules of a band."""

    def __init__(self, streamer: ExpertStreamer, guesser: Guesser) -> None:
        self._streamer, self._guesser = streamer, guesser
        self._calls: list[_Call] = []
        self._layer = -1
        self.is_open = False

    def open(self) -> None:
        """From now on, expert modules `join` instead of computing."""
        self._calls.clear()
        self.is_open = True

    def join(self, layer: int, x: mx.array, indices: mx.array, scores: mx.array | None) -> mx.array:
        """x (1, width) and indices (..., k), evaluated here: an array (k, width) that `close` will fill."""
        mx.eval(x, indices, *(() if scores is None else (scores,)))
        picks = np.array(indices).astype(np.int64).reshape(-1)
        host_scores = None if scores is None else np.array(scores.astype(mx.float32)).reshape(-1)
        promised, products = _to_be_filled((len(picks), x.shape[-1]), x.dtype)
        self._layer = layer
        self._calls.append(_Call(x, picks, host_scores, products))
        return promised

    def close(self) -> None:
        """Compute the products of all that joined. Raises ReadFailed."""
        self.is_open = False
        if not self._calls:  # a layer without experts
            return
        picks = np.stack([call.picks for call in self._calls])
        scores = [call.scores for call in self._calls if call.scores is not None]
        candidates = shared_candidates(self._guesser, self._layer, picks, np.stack(scores) if scores else None)
        x = mx.concatenate([call.x for call in self._calls])
        y = self._streamer.together(self._layer, x, picks, candidates)
        assert y.dtype == x.dtype, "an expert gives what it takes"
        mx.eval(y)
        rows = np.array(y.view(mx.uint16) if y.dtype == mx.bfloat16 else y)
        for number, call in enumerate(self._calls):
            call.products[:] = rows[number * len(call.picks) : (number + 1) * len(call.picks)]
        self._calls.clear()

    def abandon(self) -> None:
        """After an error: nobody waits any more."""
        self._calls.clear()
        self.is_open = False


def _to_be_filled(shape: tuple[int, int], dtype: mx.Dtype) -> tuple[mx.array, np.ndarray]:
    """An MLX array, and a NumPy view of the memory that it will be read from; bfloat16 as uint16.

    It holds NaN, so that a model which looks at it too early fails instead of computing something else.
    """
    if dtype != mx.bfloat16:
        raw = mx.full(shape, float("nan"), dtype=dtype)
        mx.eval(raw)
        return raw, np.array(raw, copy=False)
    raw = mx.full(shape, _BFLOAT16_NAN, dtype=mx.uint16)
    mx.eval(raw)
    return raw.view(dtype), np.array(raw, copy=False)


_BFLOAT16_NAN = 0x7FC0
