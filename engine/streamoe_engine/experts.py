"""The experts of a layer, streamed: the drop-in for mlx-lm's SwitchGLU, and the only sync point of a layer.

Owns the way from routing ids to slots to products, in decode (one token) and in a chunk (many tokens).
Refuses to know families, attention and sampling; policies and guesses are handed in.

A slot is never read over before the products that use it are evaluated: in decode a layer's products join the
next layer's evaluation, and no slot is claimed between the two except those no pick lies in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .errors import StreamoeError
from .expert_math import ExpertMath
from .guess import Guesser
from .manifest import ExpertLayer
from .policies import Policy
from .pool import SlotPool
from .reader import Read, Reader
from .telemetry import Counters
from .tier import Tier
from .uncached import UncachedFile


class StreamedExperts(nn.Module):
    """Takes the place of one layer's expert module; called as switch(x, indices)."""

    def __init__(self, layer: int, streamer: ExpertStreamer) -> None:
        super().__init__()
        self._layer, self._streamer = layer, streamer

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        """x (..., width) and indices (..., k) of expert numbers give (..., k, width)."""
        return self._streamer.run(self._layer, x, indices)


@dataclass(slots=True)
class StreamedLayer:
    """What the streamer needs of one layer. key_base + expert number is the expert's key."""

    entry: ExpertLayer
    file: UncachedFile
    math: ExpertMath
    key_base: int
    next_layer: int | None
    counters: Counters


@dataclass(slots=True)
class Placed:
    """One token's picks in their slots, and the reads that must land first."""

    keys: list[int]
    slots: list[int] = field(default_factory=list)
    misses: list[Read] = field(default_factory=list)
    guess_hits: list[Read] = field(default_factory=list)


class ExpertStreamer:
    """Runs the expert part of all layers of a band over one pool."""

    def __init__(
        self,
        layers: dict[int, StreamedLayer],
        pool: SlotPool,
        tier: Tier,
        policy: Policy,
        reader: Reader,
        guesser: Guesser,
        guess_width: int,
    ) -> None:
        self._layers, self._pool, self._tier, self._policy = layers, pool, tier, policy
        self._reader, self._guesser, self._guess_width = reader, guesser, guess_width
        self._first_layer = min(layers)
        # Reads begun early and not yet known to be right or wrong, and wrong ones a thread is still busy with.
        self._early: dict[int, Read] = {}
        self._parked: dict[int, Read] = {}

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
            self._start_over()
            raise

    def _start_over(self) -> None:
        """After a failed read: nothing in flight, no slot held, nothing half-read counted as here."""
        self._reader.drain()
        self._early.clear()
        self._parked.clear()
        self._tier.forget_landing()

    # ---- decode: one token ------------------------------------------------------------------------------------

    def _decode(self, layer: StreamedLayer, x: mx.array, indices: mx.array) -> mx.array:
        picks, candidates = self._route(layer, indices)  # attention, routing and guess: the layer's one evaluation
        placed = self._place(layer, picks)  # hits keep their slot, misses claim a landing one
        self._reader.submit(placed.misses, demand=True)
        self._read_early(layer.next_layer, candidates)  # queued behind the demand
        self._wait(layer, placed.misses + placed.guess_hits)  # only for what this layer really picked
        y = layer.math.one_token(x, placed.slots)  # lazy: joins the next layer's evaluation
        self._policy.count(placed.keys, [1] * len(placed.keys))
        for slot in placed.slots:  # admit the deserving; the others land again
            self._tier.settle(slot)
        return y

    def _route(self, layer: StreamedLayer, indices: mx.array) -> tuple[list[int], Sequence[int]]:
        scores = self._guesser.scores(layer.entry.layer)
        mx.eval(indices, *(() if scores is None else (scores,)))
        picks: list[int] = np.array(indices).reshape(-1).tolist()
        host_scores = None if scores is None else np.array(scores.astype(mx.float32))
        return picks, self._guesser.candidates(layer.entry.layer, host_scores, picks)

    def _place(self, layer: StreamedLayer, picks: Sequence[int]) -> Placed:
        placed = Placed([layer.key_base + pick for pick in picks])
        self._drop_wrong_guesses(layer, set(placed.keys))
        slot_of: dict[int, int] = {}
        for key in placed.keys:  # all hits are held before any miss claims a slot
            if (read := self._early.pop(key, None) or self._parked.pop(key, None)) is not None:
                placed.guess_hits.append(read)
                slot_of[key] = read.slot
            elif (slot := self._tier.find(key)) is not None:
                self._tier.hold(slot)
                slot_of[key] = slot
        for key in placed.keys:
            if key not in slot_of:
                read = self._claim(layer, key)
                assert read is not None, "the plan keeps a landing slot for every pick"
                placed.misses.append(read)
                slot_of[key] = read.slot
        placed.slots = [slot_of[key] for key in placed.keys]
        self._count(layer, len(placed.keys), placed.misses, placed.guess_hits)
        return placed

    def _claim(self, layer: StreamedLayer, key: int) -> Read | None:
        slot = self._tier.claim(key)
        if slot is None:
            return None
        stride = layer.entry.record.stride_bytes
        view = self._pool.slot_bytes_view(slot)[:stride]
        return Read(key, slot, layer.file, (key - layer.key_base) * stride, view)

    def _count(self, layer: StreamedLayer, picks: int, misses: Sequence[Read], guess_hits: Sequence[Read]) -> None:
        counts = layer.counters
        counts.picks += picks
        counts.misses += len(misses)
        counts.guess_hits += len(guess_hits)
        counts.hits += picks - len(misses) - len(guess_hits)
        counts.guesses += len(guess_hits)
        counts.read_bytes += (len(misses) + len(guess_hits)) * layer.entry.record.stride_bytes

    def _wait(self, layer: StreamedLayer, reads: Sequence[Read]) -> None:
        if not reads:
            return
        start = time.perf_counter()
        self._reader.promote(reads)
        self._reader.wait(reads)
        layer.counters.wait_s += time.perf_counter() - start

    # ---- guesses ----------------------------------------------------------------------------------------------

    def _read_early(self, number: int | None, candidates: Sequence[int]) -> None:
        if number is None:
            return
        layer, reads = self._layers[number], []
        for expert in candidates[: self._guess_width]:
            key = layer.key_base + expert
            if self._tier.find(key) is not None:
                continue
            read = self._claim(layer, key)
            if read is None:  # every landing slot is busy: guess less, never wait
                break
            self._early[key] = read
            reads.append(read)
        self._reader.submit(reads, demand=False)

    def _drop_wrong_guesses(self, layer: StreamedLayer, picked: set[int]) -> None:
        for key in [key for key in self._early if key not in picked]:
            read = self._early.pop(key)
            if self._reader.cancel(read):
                self._tier.forget(read.slot)
                self._tier.give_back(read.slot)
            else:
                self._parked[key] = read
                layer.counters.guesses += 1
                layer.counters.wasted += 1
                layer.counters.read_bytes += layer.entry.record.stride_bytes
        for key in [key for key, read in self._parked.items() if read.is_done and key not in picked]:
            self._unpark(key)

    def _unpark(self, key: int) -> None:
        read = self._parked.pop(key)
        if read.error is not None:  # nobody asked for it: the demand will meet the error, if there is one
            self._tier.forget(read.slot)
        self._tier.give_back(read.slot)

    def _end_parked(self) -> None:
        assert self._parked, "a landing slot is free unless a read holds it"
        self._reader.wait_done(self._parked.values())
        for key in list(self._parked):
            self._unpark(key)

    # ---- a chunk: many tokens, expert by expert -----------------------------------------------------------------

    def _chunk(self, layer: StreamedLayer, x: mx.array, indices: mx.array) -> mx.array:
        mx.eval(indices)
        picks = np.array(indices).astype(np.int64)  # (tokens, k)
        top_k, flat = picks.shape[1], picks.reshape(-1)
        by_expert = np.argsort(flat, kind="stable")
        experts, starts, counts = np.unique(flat[by_expert], return_index=True, return_counts=True)
        places = {
            layer.key_base + int(e): by_expert[s : s + n] for e, s, n in zip(experts, starts, counts, strict=True)
        }
        self._policy.count(list(places), counts.tolist())
        outputs, order = [], []
        for batch in self._arrivals(layer, list(places)):
            rows = np.concatenate([places[key] for key, _ in batch])
            slots = [slot for key, slot in batch for _ in places[key]]
            outputs.append(layer.math.rows(x[mx.array(rows // top_k)], slots))
            mx.eval(outputs[-1])  # before any of these slots is read over
            order.append(rows)
        back = np.argsort(np.concatenate(order))
        return mx.concatenate(outputs)[mx.array(back)]

    def _arrivals(self, layer: StreamedLayer, keys: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        """Batches of (key, slot): first those already here, then records as they land.

        The landing slots are a ring: a batch's slots are settled when the next is asked for, and read over by
        the next records while the batch after it is multiplied. Each record is read once.
        """
        self._drop_wrong_guesses(layer, set(keys))
        here, flying = [], deque[Read]()
        for key in keys:
            if (read := self._early.pop(key, None) or self._parked.pop(key, None)) is not None:
                flying.append(read)
            elif (slot := self._tier.find(key)) is not None:
                self._tier.hold(slot)
                here.append((key, slot))
        held = {key for key, _ in here} | {read.key for read in flying}
        absent = deque(key for key in keys if key not in held)
        guess_hits = list(flying)
        self._refill(layer, absent, flying)
        if here:
            yield here
            self._settle_batch(here)
        misses = len(keys) - len(here) - len(guess_hits)
        while absent or flying:
            self._refill(layer, absent, flying)
            if not flying:  # wrong guesses hold every landing slot: let them end, then go on
                self._end_parked()
                continue
            batch = self._land(layer, flying)
            yield batch
            self._settle_batch(batch)
        self._count_chunk(layer, len(keys), misses, guess_hits)

    def _refill(self, layer: StreamedLayer, absent: deque[int], flying: deque[Read]) -> None:
        reads = []
        while absent and (read := self._claim(layer, absent[0])) is not None:
            absent.popleft()
            reads.append(read)
        self._reader.submit(reads, demand=True)
        flying.extend(reads)

    def _land(self, layer: StreamedLayer, flying: deque[Read]) -> list[tuple[int, int]]:
        """Wait for the oldest read, then take all that have landed by then."""
        self._wait(layer, [flying[0]])
        landed = [read for read in flying if read.is_done]
        self._wait(layer, landed)
        for read in landed:
            flying.remove(read)
        return [(read.key, read.slot) for read in landed]

    def _settle_batch(self, batch: Sequence[tuple[int, int]]) -> None:
        for _, slot in batch:
            self._tier.settle(slot)

    def _count_chunk(self, layer: StreamedLayer, picks: int, misses: int, guess_hits: Sequence[Read]) -> None:
        counts = layer.counters
        counts.picks += picks
        counts.misses += misses
        counts.guess_hits += len(guess_hits)
        counts.hits += picks - misses - len(guess_hits)
        counts.guesses += len(guess_hits)
        counts.read_bytes += (misses + len(guess_hits)) * layer.entry.record.stride_bytes
