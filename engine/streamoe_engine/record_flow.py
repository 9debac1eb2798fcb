"""Records on their way to slots: demand, guesses, and the ring of a chunk.

Owns the bookkeeping between the tier (who lies where) and the reader (what is being read). Refuses to know what
is multiplied, and who guessed. The rule it keeps: a slot that a pick lies in is never read over before that pick
is settled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .manifest import ExpertLayer
from .pool import SlotPool
from .reader import Read, ReadsRecords
from .telemetry import Counters
from .tier import Tier, ring_slots
from .uncached import UncachedFile


@dataclass(frozen=True, slots=True)
class LayerRecords:
    """One layer's records. key_base + expert number is an expert's key."""

    entry: ExpertLayer
    file: UncachedFile
    key_base: int
    counters: Counters


@dataclass(slots=True)
class Placed:
    """One token's picks: slots[i] is pick i's; here: positions of those whose record is in its slot; arriving holds, by
    position, the reads that must land first."""

    keys: list[int]
    slots: list[int]
    here: list[int] = field(default_factory=list)
    arriving: dict[int, Read] = field(default_factory=dict)


class RecordFlow:
    """Brings records into slots. All calls come from the compute thread."""

    def __init__(self, pool: SlotPool, tier: Tier, reader: ReadsRecords, num_landing: int) -> None:
        self._pool, self._tier, self._reader, self._num_landing = pool, tier, reader, num_landing
        # Reads begun early and not yet known to be right or wrong, and wrong ones a thread is still busy with.
        self._early: dict[int, Read] = {}
        self._parked: dict[int, Read] = {}

    # ---- one token ----------------------------------------------------------------------------------------------

    def place(self, layer: LayerRecords, experts: Sequence[int]) -> Placed:
        """Give each pick its slot: hits keep theirs, misses claim a landing one and are read at once."""
        base = layer.key_base
        keys = [base + expert for expert in experts]
        if self._early or self._parked:
            self._drop_wrong_guesses(layer, keys)
        placed = Placed(keys, self._tier.hold_all(keys))  # all hits are held before any miss claims a slot
        for position, key in enumerate(keys):
            if key in self._early or key in self._parked:
                placed.arriving[position] = self._take_early(key)
            elif placed.slots[position] >= 0:
                placed.here.append(position)
        num_guess_hits = len(placed.arriving)
        if len(placed.here) < len(keys):
            self._demand(layer, placed)
        _count(layer, len(keys), len(placed.arriving) - num_guess_hits, num_guess_hits)
        return placed

    def read_early(self, layer: LayerRecords, experts: Sequence[int]) -> None:
        """Begin reading what this layer may pick next, behind every demand; what is here already is left alone."""
        absent = [key for expert in experts if self._tier.find(key := layer.key_base + expert) is None]
        reads = self._claim_all(layer, absent)  # where every landing slot is busy: guess less, never wait
        self._early.update((read.key, read) for read in reads)
        self._reader.submit(reads, demand=False)

    def landed(self, layer: LayerRecords, placed: Placed) -> Iterator[list[int]]:
        """Positions of picks whose record is in its slot: the hits first, perhaps none, then the others as they land.

        Raises ReadFailed.
        """
        yield placed.here
        waiting = dict(placed.arriving)
        while waiting:
            self._wait_for_any(layer, list(waiting.values()))
            landed = [position for position, read in waiting.items() if read.is_done]
            for position in landed:
                _raise_if_failed(waiting.pop(position))
            yield landed

    def settle(self, slots: Sequence[int]) -> None:
        """These slots' picks have been used: admit the deserving, let the others land again."""
        self._tier.settle_all(slots)

    # ---- a chunk of tokens ----------------------------------------------------------------------------------------

    def arrivals(
        self, layer: LayerRecords, experts: Sequence[int], once_all_are_asked_for: Callable[[], None]
    ) -> Iterator[list[tuple[int, int]]]:
        """Batches of (expert, slot): first those already here, then records as they land; each is read once.

        The landing slots are a ring: a batch's slots are settled when the next is asked for, and read over by
        the next records while the batch after it is multiplied. When the last record has been asked for, the disk
        is free for others, and that is called. Raises ReadFailed.
        """
        self._drop_wrong_guesses(layer, [layer.key_base + expert for expert in experts])
        here: list[tuple[int, int]] = []
        flying, absent = deque[Read](), deque[int]()
        for expert in experts:
            key = layer.key_base + expert
            if key in self._early or key in self._parked:
                flying.append(self._take_early(key))
            elif (slot := self._tier.find(key)) is not None:
                self._tier.hold(slot)
                here.append((expert, slot))
            else:
                absent.append(key)
        self._reader.promote(flying)
        _count(layer, len(experts), len(absent), len(flying))
        asked_for_all = self._refill(layer, absent, flying)
        if asked_for_all:
            once_all_are_asked_for()
        if here:
            yield here
            self.settle([slot for _, slot in here])
        while absent or flying:
            if self._refill(layer, absent, flying) and not asked_for_all:
                asked_for_all = True
                once_all_are_asked_for()
            if not flying:  # wrong guesses hold every landing slot: let them end, then go on
                self._end_parked()
                continue
            batch = self._land(layer, flying)
            yield batch
            self.settle([slot for _, slot in batch])

    def begin_chunk(self) -> None:
        """Lend hot slots to the ring, so that reading runs ahead of computing by more than a few records."""
        self._tier.lend(ring_slots(self._pool.num_slots, self._num_landing))

    def end_chunk(self) -> None:
        """Give them back to the hot tier, whatever they hold now."""
        self._tier.reclaim(self._num_landing)

    def start_over(self) -> None:
        """After a failed read: nothing in flight, no slot held, nothing half-read counted as here."""
        self._reader.drain()
        self._early.clear()
        self._parked.clear()
        self._tier.forget_landing()
        self._tier.reclaim(self._num_landing)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _demand(self, layer: LayerRecords, placed: Placed) -> None:
        """Hurry guesses that turned out right, and read what nobody guessed."""
        guessed = list(placed.arriving.values())
        slots, arriving = placed.slots, placed.arriving
        absent = [position for position, slot in enumerate(slots) if slot < 0 and position not in arriving]
        misses = self._claim_all(layer, [placed.keys[position] for position in absent])
        assert len(misses) == len(absent), "the plan keeps a landing slot for every pick"
        arriving.update(zip(absent, misses, strict=True))
        for position, read in arriving.items():
            slots[position] = read.slot
        self._reader.demand(guessed, misses)

    def _claim_all(self, layer: LayerRecords, keys: Sequence[int]) -> list[Read]:
        """Reads, not yet asked for, of the first of these records: as many as there are landing slots."""
        stride = layer.entry.record.stride_bytes
        return [
            Read(key, slot, layer.file, (key - layer.key_base) * stride, self._pool.slot_bytes_view(slot)[:stride])
            for key, slot in zip(keys, self._tier.claim_all(keys), strict=False)
        ]

    def _take_early(self, key: int) -> Read:
        read = self._early.pop(key, None) or self._parked.pop(key, None)
        assert read is not None, "the caller has looked"
        return read

    def _drop_wrong_guesses(self, layer: LayerRecords, keys: Sequence[int]) -> None:
        picked = set(keys)
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
        if self._parked:
            self._reader.look(self._parked.values())
        for key in [key for key, read in self._parked.items() if read.is_done and key not in picked]:
            self._unpark(key)

    def _unpark(self, key: int) -> None:
        read = self._parked.pop(key)
        if read.error is not None:  # nobody asked for it: the demand will meet the error, if there is one
            self._tier.forget(read.slot)
        self._tier.give_back(read.slot)

    def _end_parked(self) -> None:
        assert self._parked, "a landing slot is free unless a read holds it"
        self._reader.wait_for_all(self._parked.values())
        for key in list(self._parked):
            self._unpark(key)

    def _refill(self, layer: LayerRecords, absent: deque[int], flying: deque[Read]) -> bool:
        """Ask for as many records as there are slots for; True when none is left to ask for."""
        reads = self._claim_all(layer, absent)
        for _ in reads:
            absent.popleft()
        self._reader.submit(reads, demand=True)
        flying.extend(reads)
        return not absent

    def _land(self, layer: LayerRecords, flying: deque[Read]) -> list[tuple[int, int]]:
        """Wait for one read, then take all that have landed by then."""
        self._wait_for_any(layer, list(flying))
        landed = [read for read in flying if read.is_done]
        for read in landed:
            flying.remove(read)
            _raise_if_failed(read)
        return [(read.key - layer.key_base, read.slot) for read in landed]

    def _wait_for_any(self, layer: LayerRecords, reads: Sequence[Read]) -> None:
        start = time.perf_counter()
        self._reader.wait_for_any(reads)
        layer.counters.wait_s += time.perf_counter() - start


def _raise_if_failed(read: Read) -> None:
    if read.error is not None:
        raise read.error


def _count(layer: LayerRecords, num_picks: int, num_misses: int, num_guess_hits: int) -> None:
    counts = layer.counters
    counts.picks += num_picks
    counts.misses += num_misses
    counts.guess_hits += num_guess_hits
    counts.hits += num_picks - num_misses - num_guess_hits
    counts.guesses += num_guess_hits
    counts.read_bytes += (num_misses + num_guess_hits) * layer.entry.record.stride_bytes
