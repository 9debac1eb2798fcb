"""The experts of a layer, streamed: from a token's picks, or a chunk's, to their products.

Owns the step that the engine is about. Refuses to know families, attention and sampling, and what computes: policy,
flow of records and arithmetic are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .policies import Policy
from .record_flow import LayerRecords, RecordFlow


class Recorder(Protocol):
    """Told what was routed, for traces."""

    def token(self, layer: int, picks: Sequence[int], candidates: Sequence[int]) -> None:
        """One token picked these experts; candidates are guesses for the next expert layer, likeliest first."""

    def chunk(self, layer: int, picks: np.ndarray) -> None:
        """A chunk picked these, (tokens, k) int64."""


Batch = tuple[np.ndarray, list[int]]  # flat positions in picks (tokens, k), and the slot of each


class ExpertMath(Protocol):
    """One layer's arithmetic; x and the products are arrays of whatever library computes."""

    def one_token(self, x: Any, slots: Sequence[int], landed: Iterable[Sequence[int]]) -> Any:
        """x (1, width) through each slot's expert, in order: (len(slots), width).

        landed yields positions in `slots` as their records land: first those that are here, perhaps none. No slot
        changes before the next layer has routed.
        """

    def chunk(self, x: Any, top_k: int, batches: Iterable[Batch]) -> Any:
        """x (tokens, width) through every pick: (tokens * top_k, width), by flat position.

        A batch's slots are read over as soon as the next batch is asked for.
        """

    def together(self, x: Any, top_k: int, batches: Iterable[Batch]) -> Any:
        """As chunk, and each row has the bits that one_token gives it."""


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
        guess_width: int,
        recorder: Recorder | None = None,
    ) -> None:
        self._layers, self._flow, self._policy = layers, flow, policy
        self._guess_width, self._recorder = guess_width, recorder
        self._first_layer = min(layers)

    def token(self, number: int, x: Any, picks: Sequence[int], candidates: Callable[[], Sequence[int]]) -> Any:
        """One token: x (1, width) through its picks' experts, (k, width) in their order.

        candidates: gives guesses for the next expert layer, likeliest first; called once the demand is on its way.
        Raises ReadFailed.
        """
        layer = self._begin(number, 1)
        try:
            placed = self._flow.place(layer.records, picks)  # hits keep their slot, misses are read
            guesses = candidates()
            self._read_early(layer.following, guesses[: self._guess_width])  # behind the demand; never routed by
            y = layer.math.one_token(x, placed.slots, self._flow.landed(layer.records, placed))
        except BaseException:  # a failed read, or Ctrl-C: no slot may stay held
            self._flow.start_over()
            raise
        self._policy.count(placed.keys, [1] * len(placed.keys))
        self._flow.settle(placed.slots)  # admit the deserving; the others land again
        if self._recorder is not None:
            self._recorder.token(number, picks, guesses)
        return y

    def chunk(self, number: int, x: Any, picks: np.ndarray, candidates: Sequence[int] = ()) -> Any:
        """A chunk: x (tokens, width) through picks (tokens, k) int64, expert by expert: (tokens * k, width).

        Each record is read once. candidates: experts that the next layer will need, surest first; read when this
        layer's own have been asked for, as far as the ring goes. Raises ReadFailed.
        """
        layer = self._begin(number, len(picks))
        if self._recorder is not None:
            self._recorder.chunk(number, picks)
        places, base = _places(picks), layer.records.key_base
        self._policy.count([base + expert for expert in places], [len(where) for where in places.values()])
        try:
            if number == self._first_layer:
                self._flow.begin_chunk()
            y = layer.math.chunk(x, picks.shape[1], self._batches(layer, places, candidates))
        except BaseException:  # a failed read, or Ctrl-C: no slot may stay held
            self._flow.start_over()
            raise
        if layer.following is None:
            self._flow.end_chunk()
        return y

    def together(self, number: int, x: Any, picks: np.ndarray, candidates: Sequence[int] = ()) -> Any:
        """One token of each of several sequences: x (sequences, width) through picks (sequences, k), as `chunk`.

        Each record is read once for all of them, and counted once. No hot slot is lent: what the sequences need next
        is what they need now. candidates: guesses for the next expert layer, likeliest first. Raises ReadFailed.
        """
        layer = self._begin(number, len(picks))
        if self._recorder is not None:
            self._recorder.chunk(number, picks)
        places, base = _places(picks), layer.records.key_base
        self._policy.count([base + expert for expert in places], [len(where) for where in places.values()])
        try:
            y = layer.math.together(x, picks.shape[1], self._batches(layer, places, candidates[: self._guess_width]))
        except BaseException:  # a failed read, or Ctrl-C: no slot may stay held
            self._flow.start_over()
            raise
        return y

    def _begin(self, number: int, num_tokens: int) -> StreamedLayer:
        if number == self._first_layer:
            self._policy.tick(num_tokens)
        return self._layers[number]

    def _read_early(self, number: int | None, candidates: Sequence[int]) -> None:
        if number is not None and len(candidates):
            self._flow.read_early(self._layers[number].records, candidates)

    def _batches(
        self, layer: StreamedLayer, places: dict[int, np.ndarray], candidates: Sequence[int]
    ) -> Iterator[Batch]:
        def read_ahead() -> None:
            self._read_early(layer.following, candidates)

        for batch in self._flow.arrivals(layer.records, list(places), read_ahead):
            where = np.concatenate([places[expert] for expert, _ in batch])
            yield where, [slot for expert, slot in batch for _ in places[expert]]


def _places(picks: np.ndarray) -> dict[int, np.ndarray]:
    """By expert, in ascending order: the flat positions in picks (tokens, k) where it was picked."""
    flat = picks.reshape(-1)
    by_expert = np.argsort(flat, kind="stable")
    experts, starts = np.unique(flat[by_expert], return_index=True)
    return dict(zip(experts.tolist(), np.split(by_expert, starts[1:]), strict=True))
