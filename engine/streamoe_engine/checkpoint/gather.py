"""Ranges of source files copied to where they belong in a new file, in few large direct reads.

A window of the new file is planned at a time: its pieces are sorted by their place in the
source, neighbours are read together, and then put in their places, so that a stacked tensor of many experts costs
one read for several records. Refuses to know what the bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..sizes import KIB, MIB
from .segments import Bytes, Columns, Extent, Padding
from .sink import Sink
from .source_files import MAX_SPAN, SourceReader

# Reading 64 KiB for nothing takes as long as the start of another request (20 us at 3 GB/s).
_MAX_GAP = 64 * KIB
_MIN_WINDOW = 4 * MIB

Copyable = bytes | Extent | Padding | Columns


@dataclass(slots=True)
class _Piece:
    """Rows of a source file for `target`, target_step bytes apart in the window."""

    source: Extent
    target: int
    target_step: int

    @property
    def end(self) -> int:
        return self.source.offset + (self.source.num_rows - 1) * self.source.row_step + self.source.row_bytes


class Gatherer:
    """Copies from `reader` into `sink`."""

    def __init__(self, reader: SourceReader, sink: Sink) -> None:
        self._reader, self._sink = reader, sink
        self._window = _Window(0)

    def copy(self, segments: Iterable[Copyable]) -> None:
        """Append the segments to the open file. Raises CheckpointIncomplete and ConversionFailed."""
        self._begin_window()
        for segment in segments:
            if isinstance(segment, Columns):
                self._add_rows(segment.parts)
            elif isinstance(segment, Extent) and not segment.is_contiguous:
                self._add_rows((segment,))
            else:
                self._add_run(segment)
        self._flush()

    def _add_run(self, segment: bytes | Extent | Padding) -> None:
        total = len(segment) if isinstance(segment, bytes) else segment.num_bytes
        done = 0
        while done < total:
            if not self._window.left:
                self._next_window()
            count = min(self._window.left, total - done, MAX_SPAN)
            if isinstance(segment, Extent):
                piece = Extent(segment.file, segment.offset + done, count)
                self._window.pieces.append(_Piece(piece, self._window.used, 0))
            else:
                data = segment[done : done + count] if isinstance(segment, bytes) else None
                self._window.constants.append((self._window.used, count, data))
            self._window.used += count
            done += count

    def _add_rows(self, parts: tuple[Extent, ...]) -> None:
        stride, num_rows = sum(part.row_bytes for part in parts), parts[0].num_rows
        most = min(MAX_SPAN // max(part.row_step, part.row_bytes) for part in parts)
        assert 0 < stride <= _MIN_WINDOW and most > 0, parts
        first = 0
        while first < num_rows:
            count = min(num_rows - first, most, self._window.left // stride)
            if not count:
                self._next_window()
                continue
            at = self._window.used
            for part in parts:
                self._window.pieces.append(_Piece(part.rows(first, count), at, stride))
                at += part.row_bytes
            self._window.used += count * stride
            first += count

    def _begin_window(self) -> None:
        if self._sink.room < _MIN_WINDOW:
            self._sink.make_room()
        self._window = _Window(self._sink.room)

    def _next_window(self) -> None:
        self._flush()
        self._begin_window()

    def _flush(self) -> None:
        window = self._window
        out = self._sink.reserve(window.used)
        for offset, count, constant in window.constants:
            out[offset : offset + count] = 0 if constant is None else np.frombuffer(constant, dtype=np.uint8)
        for group in _spans(window.pieces):
            start, end = group[0].source.offset, max(piece.end for piece in group)
            data = self._reader.span(group[0].source.file, start, end)
            for piece in group:
                _place(piece, data[piece.source.offset - start :], out[piece.target :])


class _Window:
    """What belongs into one stretch of the new file, `room` bytes at most; a constant without data is zeros."""

    def __init__(self, room: int) -> None:
        self.room, self.used = room, 0
        self.pieces: list[_Piece] = []
        self.constants: list[tuple[int, int, bytes | None]] = []

    @property
    def left(self) -> int:
        return self.room - self.used


def _spans(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces in groups that one read serves each."""
    pieces.sort(key=lambda piece: (piece.source.file, piece.source.offset))
    group: list[_Piece] = []
    start = end = 0
    for piece in pieces:
        source = piece.source
        if group and (
            source.file != group[0].source.file
            or source.offset > end + _MAX_GAP
            or max(end, piece.end) - start > MAX_SPAN
        ):
            yield group
            group = []
        if not group:
            start = end = source.offset
        group.append(piece)
        end = max(end, piece.end)
    if group:
        yield group


def _place(piece: _Piece, data: Bytes, out: Bytes) -> None:
    source = piece.source
    if source.num_rows == 1:
        out[: source.row_bytes] = data[: source.row_bytes]
        return
    shape = (source.num_rows, source.row_bytes)
    as_strided(out, shape, (piece.target_step, 1))[:] = as_strided(data, shape, (source.row_step, 1), writeable=False)
