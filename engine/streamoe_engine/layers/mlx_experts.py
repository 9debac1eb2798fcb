"""The drop-in for mlx-lm's SwitchGLU, and the only sync point of a layer.

Owns the evaluation that ends in routing ids. In decode a layer's products are only begun, and the next layer's
evaluation waits for them; no slot that a pick lies in is read over between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..experts import ExpertStreamer
from ..guess import Guesser
from .mlx_together import Meeting


class StreamedExperts(nn.Module):
    """Takes the place of one layer's expert module; called as switch(x, indices)."""

    def __init__(
        self,
        layer: int,
        streamer: ExpertStreamer,
        guesser: Guesser,
        next_router: Callable[[], mx.array] | None,
        meeting: Meeting,
    ) -> None:
        super().__init__()
        self._meeting = meeting
        self._layer, self._streamer, self._guesser, self._next_router = layer, streamer, guesser, next_router

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        """x (..., width) and indices (..., k) of expert numbers give (..., k, width)."""
        width, top_k = x.shape[-1], indices.shape[-1]
        flat_x = x.reshape(-1, width)
        if self._meeting.is_open:
            scores = None if self._next_router is None else self._next_router()
            y = self._meeting.join(self._layer, flat_x, indices, scores)
        elif flat_x.shape[0] == 1:
            picks, candidates = self._route(indices)
            y = self._streamer.token(self._layer, flat_x, picks, candidates)
            # The products are computed while Python builds the next layer.
            mx.async_eval(y)  # type: ignore[no-untyped-call]
        else:
            mx.eval(indices)
            y = self._streamer.chunk(self._layer, flat_x, np.array(indices).astype(np.int64).reshape(-1, top_k))
        return y.reshape(*indices.shape, width)

    def _route(self, indices: mx.array) -> tuple[list[int], Callable[[], Sequence[int]]]:
        """Attention, routing and the guess's scores: the layer's one evaluation. Picks, and what gives the guess."""
        scores = None if self._next_router is None else self._next_router().astype(mx.float32)
        mx.eval(indices, *(() if scores is None else (scores,)))
        picks: list[int] = np.array(indices).reshape(-1).tolist()
        host_scores = None if scores is None else np.array(scores)
        return picks, lambda: self._guesser.candidates(self._layer, host_scores, picks)
