"""The experts of a layer, streamed: the drop-in for mlx-lm's SwitchGLU, and the only sync point of a layer.

Owns the way from routing ids to products, in decode (one token) and in a chunk (many tokens). Refuses to know
families, attention and sampling; policy, guesser and the flow of records are handed in.

In decode a layer's products join the next layer's evaluation, and no slot is claimed between the two except those
no pick lies in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .errors import StreamoeError
from .expert_math import ExpertMath
from .guess import Guesser
from .policies import Policy
from .record_flow import LayerRecords, RecordFlow


class Recorder(Protocol):
    """Told what was routed, for traces."""

    def token(self, layer: int, picks: Sequence[int], candidates: Sequence[int]) -> None:
        """One token picked these experts; candidates are guesses for the next expert layer, likeliest first."""

    def chunk(self, layer: int, picks: np.ndarray) -> None:
        """A chunk picked these, (tokens, k) int64."""


class StreamedExperts(nn.Module):
    """Takes the place of one layer's expert module; called as switch(x, indices)."""

    def __init__(self, layer: int, streamer: ExpertStreamer) -> None:
        super().__init__()
        self._layer, self._streamer = layer, streamer

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        """x (..., width) and indices (..., k) of expert numbers give (..., k, width)."""
        return self._streamer.run(self._layer, x, indices)


@dataclass(frozen=True, slots=True)
class StreamedLayer:
    """What the streamer needs of one layer; following is the next layer that has experts."""

    number: int
    records: LayerRecords
    math: ExpertMath
    following: int | None


class ExpertStreamer:
    """Runs the expert part of all layers of a band over one pool."""

    def __init__(
        self,
        layers: dict[int, StreamedLayer],
        flow: RecordFlow,
        policy: Policy,
        guesser: Guesser,
        guess_width: int,
        recorder: Recorder | None = None,
    ) -> None:
        self._layers, self._flow, self._policy = layers, flow, policy
        self._guesser, self._guess_width, self._recorder = guesser, guess_width, recorder
        self._first_layer = min(layers)

    def run(self, number: int, x: mx.array, indices: mx.array) -> mx.array:
        """One layer's experts: see StreamedExperts."""
        layer, width = self._layers[number], x.shape[-1]
        if number == self._first_layer:
            self._policy.tick()
        flat_x, flat_indices = x.reshape(-1, width), indices.reshape(-1, indices.shape[-1])
        step = self._decode if flat_x.shape[0] == 1 else self._chunk
        try:
            return step(layer, flat_x, flat_indices).reshape(*indices.shape, width)
        except StreamoeError:
            self._flow.start_over()
            raise

    def _decode(self, layer: StreamedLayer, x: mx.array, indices: mx.array) -> mx.array:
        picks, candidates = self._route(layer, indices)  # attention, routing and guess: the layer's one evaluation
        placed = self._flow.place(layer.records, picks)  # hits keep their slot, misses are read
        self._read_early(layer.following, candidates)  # behind the demand
        y = layer.math.one_token(x, placed.slots, self._flow.landed(layer.records, placed))
        self._policy.count(placed.keys, [1] * len(placed.keys))
        self._flow.settle(placed.slots)  # admit the deserving; the others land again
        return y

    def _route(self, layer: StreamedLayer, indices: mx.array) -> tuple[list[int], Sequence[int]]:
        scores = self._guesser.scores(layer.number)
        mx.eval(indices, *(() if scores is None else (scores,)))
        picks: list[int] = np.array(indices).reshape(-1).tolist()
        host_scores = None if scores is None else np.array(scores.astype(mx.float32))
        candidates = self._guesser.candidates(layer.number, host_scores, picks)
        if self._recorder is not None:
            self._recorder.token(layer.number, picks, candidates)
        return picks, candidates

    def _read_early(self, number: int | None, candidates: Sequence[int]) -> None:
        if number is not None and candidates:
            self._flow.read_early(self._layers[number].records, candidates[: self._guess_width])

    def _chunk(self, layer: StreamedLayer, x: mx.array, indices: mx.array) -> mx.array:
        """Expert by expert: gather the rows that picked it, multiply, put every product back in its place."""
        mx.eval(indices)
        picks = np.array(indices).astype(np.int64)  # (tokens, k)
        if self._recorder is not None:
            self._recorder.chunk(layer.number, picks)
        places = _places(picks)
        base = layer.records.key_base
        self._policy.count([base + expert for expert in places], [len(where) for where in places.values()])
        outputs, order = [], []
        for batch in self._flow.arrivals(layer.records, list(places)):
            where = np.concatenate([places[expert] for expert, _ in batch])
            slots = [slot for expert, slot in batch for _ in places[expert]]
            outputs.append(layer.math.rows(x[mx.array(where // picks.shape[1])], slots))
            mx.eval(outputs[-1])  # before any of these slots is read over
            order.append(where)
        return mx.concatenate(outputs)[mx.array(np.argsort(np.concatenate(order)))]


def _places(picks: np.ndarray) -> dict[int, np.ndarray]:
    """By expert, in ascending order: the flat positions in picks (tokens, k) where it was picked."""
    flat = picks.reshape(-1)
    by_expert = np.argsort(flat, kind="stable")
    experts, starts = np.unique(flat[by_expert], return_index=True)
    return dict(zip(experts.tolist(), np.split(by_expert, starts[1:]), strict=True))
