"""The output head of a band whose cap has no room for it: cut into blocks of rows that are read for every token.

Owns the cut and its cost: a ring of blocks being read or multiplied, and the blocks that are kept because the rest of
the cap holds them. Every byte of the head is read for every token, so a kept block saves more reads than slots of the
same size. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from .manifest import DTYPE_BYTES, PAGE_BYTES, TAIL_PART, Field, Manifest
from .sizes import MIB, round_up
from .uncached import ALIGNMENT

HeadChoice = Literal["auto", "resident", "streamed"]
HEAD_CHOICES: tuple[HeadChoice, ...] = ("auto", "resident", "streamed")
# One block is multiplied while two are read.
RING_BLOCKS = 3
# As large as a record of Qwen3.6's experts: direct reads are at their full speed there.
_BLOCK_WEIGHT_BYTES = 2 * MIB
_LEAST_BLOCKS = 16  # so that the ring of a small head is small too


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """A head's matrix as the tail part has it, cut into blocks of block_rows vocabulary rows.

    fields: its tensors (weight, and scales and biases where it is quantised), offsets from the start of the part's
    data. block_bytes: room for one block with each tensor read in whole sectors, a multiple of PAGE_BYTES.
    """

    fields: tuple[Field, ...]
    num_rows: int
    block_rows: int

    @property
    def num_blocks(self) -> int:
        """Blocks of the whole head; the last may have fewer rows."""
        return -(-self.num_rows // self.block_rows)

    @property
    def block_bytes(self) -> int:
        """Room for one block."""
        windows = (window_bytes(row_bytes(field) * self.block_rows) for field in self.fields)
        return round_up(sum(windows), PAGE_BYTES)

    def block_fields(self, block: int) -> tuple[Field, ...]:
        """The tensors of one block, offsets from the start of the part's data."""
        first = block * self.block_rows
        rows = min(self.block_rows, self.num_rows - first)
        return tuple(
            replace(field, shape=(rows, *field.shape[1:]), offset=field.offset + first * row_bytes(field))
            for field in self.fields
        )


@dataclass(frozen=True, slots=True)
class StreamedHead:
    """How a plan streams the head: its layout, and how many blocks, the first ones, stay in memory."""

    layout: HeadLayout
    kept_blocks: int = 0

    @property
    def num_slots(self) -> int:
        """Blocks that there is room for: the ring's and the kept ones."""
        return self.kept_blocks + RING_BLOCKS

    @property
    def num_bytes(self) -> int:
        """Room for them all."""
        return self.num_slots * self.layout.block_bytes


def window_bytes(num_bytes: int) -> int:
    """Room for num_bytes that begin anywhere in a file, read in whole sectors."""
    return round_up(num_bytes, ALIGNMENT) + ALIGNMENT


def row_bytes(field: Field) -> int:
    """Bytes of one row of a matrix."""
    return prod(field.shape[1:]) * DTYPE_BYTES[field.dtype]


def head_layout(manifest: Manifest) -> HeadLayout:
    """The layout of the model's head."""
    fields = head_fields(manifest)
    weight = next(field for field in fields if field.name.endswith(".weight"))
    rows = min(_BLOCK_WEIGHT_BYTES // row_bytes(weight), -(-manifest.vocab_size // _LEAST_BLOCKS))
    return HeadLayout(fields, manifest.vocab_size, max(rows, 1))


def head_fields(manifest: Manifest) -> tuple[Field, ...]:
    """The tensors of the tail part that have a row for each word; a bias is not among them."""
    fields = manifest.resident[TAIL_PART]
    return tuple(field for field in fields if len(field.shape) == 2 and field.shape[0] == manifest.vocab_size)
