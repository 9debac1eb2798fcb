"""The output head read for every token: blocks of vocabulary rows on their way through a ring.

Owns the head's file and the slots its blocks lie in; blocks that the plan keeps are read once, at open.
Refuses to know what is multiplied.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, replace

from .manifest import TAIL_PART, Field, resident_file
from .plan_head import RING_BLOCKS, StreamedHead, row_bytes, window_bytes
from .pool import SlotPool
from .reader import Read, ReadsRecords
from .sizes import round_up
from .store import ModelStore
from .uncached import ALIGNMENT, UncachedFile, aligned_buffer

_NO_KEY = -1  # these reads are nobody's experts


@dataclass(frozen=True, slots=True)
class HeadBlock:
    """Rows [first_row, first_row + num_rows) in one slot of the head's pool.

    fields: by "weight", "scales", "biases": the block's tensors, offsets from the slot's start.
    """

    slot: int
    first_row: int
    num_rows: int
    fields: dict[str, Field]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A block on its way, one read a tensor."""

    block: HeadBlock
    reads: tuple[Read, ...]


class HeadStream:
    """A streamed head. Calls come from the compute thread; the band's reader reads.

    read_bytes, wait_s: what the passes have read so far, and how long the compute thread stood still for it.
    """

    def __init__(self, store: ModelStore, head: StreamedHead, reader: ReadsRecords) -> None:
        """Raises the store's errors, and ReadFailed."""
        self._layout, self._num_kept, self._reader = head.layout, head.kept_blocks, reader
        self._file = store.open_records(resident_file(TAIL_PART))
        self._data_start = _data_start(self._file)
        self.pool = SlotPool(head.num_slots, head.layout.block_bytes)
        self.read_bytes, self.wait_s = 0, 0.0
        kept = [self._depart(number, number) for number in range(self._num_kept)]
        self._kept = [self._landed(flight) for flight in kept]
        self.read_bytes, self.wait_s = 0, 0.0

    @property
    def num_rows(self) -> int:
        """Words of the vocabulary."""
        return self._layout.num_rows

    def blocks(self) -> Generator[HeadBlock, None, None]:
        """The whole head in order, once; a block may be read over when the next is asked for. Raises ReadFailed."""
        waiting = iter(range(self._num_kept, self._layout.num_blocks))
        slots = range(self._num_kept, self._num_kept + RING_BLOCKS)
        flights: deque[_Flight] = deque()
        try:
            flights.extend(self._depart(number, slot) for slot, number in zip(slots, waiting, strict=False))
            yield from self._kept
            while flights:
                block = self._landed(flights[0])
                flights.popleft()
                yield block
                if (number := next(waiting, None)) is not None:
                    flights.append(self._depart(number, block.slot))
        finally:  # after an error or Ctrl-C nothing may still be on its way to these slots
            self._reader.wait_for_all(read for flight in flights for read in flight.reads)

    def _depart(self, number: int, slot: int) -> _Flight:
        """Ask for a block's sectors, each tensor's behind the last one's in the slot."""
        view, position, reads, fields = self.pool.slot_bytes_view(slot), 0, [], {}
        block_fields = self._layout.block_fields(number)
        for field in block_fields:
            start = self._data_start + field.offset
            base = start - start % ALIGNMENT
            window = view[position : position + round_up(start + field.num_bytes - base, ALIGNMENT)]
            reads.append(Read(_NO_KEY, slot, self._file, base, window))
            fields[field.name.rpartition(".")[2]] = replace(field, offset=position + start - base)
            position += window_bytes(self._layout.block_rows * row_bytes(field))
        self._reader.submit(reads, demand=True)
        rows = block_fields[0].shape[0]
        return _Flight(HeadBlock(slot, number * self._layout.block_rows, rows, fields), tuple(reads))

    def _landed(self, flight: _Flight) -> HeadBlock:
        start = time.perf_counter()
        self._reader.wait_for_all(flight.reads)
        self.wait_s += time.perf_counter() - start
        for read in flight.reads:
            if read.error is not None:
                raise read.error
            self.read_bytes += len(read.view)
        return flight.block


def _data_start(file: UncachedFile) -> int:
    """Where a safetensors file's data begin."""
    first = aligned_buffer(ALIGNMENT)
    file.read_into(first, 0)
    return 8 + int(struct.unpack("<Q", first[:8])[0])
