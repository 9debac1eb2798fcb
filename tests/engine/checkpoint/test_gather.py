"""Any mix of ranges, strided rows, columns, constants and padding arrives as plain slicing would put it together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine.checkpoint import sink as sinks
from streamoe_engine.checkpoint.gather import Copyable, Gatherer
from streamoe_engine.checkpoint.segments import Columns, Extent, Padding
from streamoe_engine.checkpoint.sink import Sink, WrittenFile
from streamoe_engine.checkpoint.source_files import SourceFiles, SourceReader

NUM_BYTES = 40_000_000  # more than two of every buffer


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Path, ...], list[bytes]]:
    random, paths, contents = np.random.default_rng(0), [], []
    for number in range(2):
        path = tmp_path_factory.mktemp("sources") / f"{number}"
        contents.append(random.bytes(NUM_BYTES + 1234 * number))
        path.write_bytes(contents[-1])
        paths.append(path)
    return tuple(paths), contents


@pytest.fixture(scope="module")
def copied(sources: tuple, tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Copyable]], bytes]:
    """A function that gathers segments into a new file and returns what is in it, its hash checked."""
    root = tmp_path_factory.mktemp("gathered")

    def copy(segments: list[Copyable]) -> bytes:
        written: list[WrittenFile] = []
        with SourceFiles(sources[0]) as files, Sink(root, lambda count, name: None, written.append) as sink:
            sink.open("folder/out", 0)
            Gatherer(SourceReader(files), sink).copy(segments)
            sink.close()
            sink.finish()
        content = (root / "folder" / "out").read_bytes()
        assert written == [WrittenFile("folder/out", len(content), hashlib.sha256(content).hexdigest())]
        return content

    return copy


def plainly(segment: Copyable, contents: list[bytes]) -> bytes:
    if isinstance(segment, bytes):
        return segment
    if isinstance(segment, Padding):
        return bytes(segment.num_bytes)
    parts = segment.parts if isinstance(segment, Columns) else (segment,)
    rows = [
        contents[part.file][at : at + part.row_bytes]
        for row in range(parts[0].num_rows)
        for part in parts
        for at in [part.offset + row * part.row_step]
    ]
    return b"".join(rows)


@st.composite
def extents(draw: st.DrawFn, num_rows: int | None = None) -> Extent:
    rows = num_rows or draw(st.sampled_from([1, 2, 7, 300]))
    row_bytes = draw(st.integers(1, 5_000))
    row_step = row_bytes + draw(st.sampled_from([0, 1, 4_096, 100_000]))
    offset = draw(st.integers(0, NUM_BYTES - rows * row_step - row_bytes))
    return Extent(draw(st.integers(0, 1)), offset, row_bytes, rows, row_step)


@st.composite
def runs(draw: st.DrawFn) -> Extent:
    num_bytes = draw(st.one_of(st.integers(1, 100_000), st.sampled_from([16 << 20, (16 << 20) + 1, 35_000_000])))
    return Extent(draw(st.integers(0, 1)), draw(st.integers(0, NUM_BYTES - num_bytes)), num_bytes)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    num_rows = draw(st.sampled_from([1, 3, 250]))
    return Columns(tuple(draw(st.lists(extents(num_rows), min_size=1, max_size=3))))


SEGMENTS = st.lists(
    st.one_of(runs(), extents(), columns(), st.binary(max_size=9_000), st.builds(Padding, st.integers(0, 70_000))),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(segments=SEGMENTS)
def test_gathered_bytes_are_those_of_plain_slices(
    segments: list[Copyable], sources: tuple, copied: Callable[[list[Copyable]], bytes]
) -> None:
    assert copied(segments) == b"".join(plainly(segment, sources[1]) for segment in segments)


def test_the_last_bytes_of_a_file_are_reached(sources: tuple, copied: Callable[[list[Copyable]], bytes]) -> None:
    last = [Extent(file, len(content) - 3, 3) for file, content in enumerate(sources[1])]
    assert copied([*last]) == b"".join(content[-3:] for content in sources[1])


def test_a_file_of_whole_buffers_has_no_block_too_many(copied: Callable[[list[Copyable]], bytes]) -> None:
    for num_bytes in (0, 1, 4_096, sinks.BUFFER_BYTES - 4_096, sinks.BUFFER_BYTES, 2 * sinks.BUFFER_BYTES):
        assert copied([Padding(num_bytes)]) == bytes(num_bytes)


def test_padding_is_zero_in_buffers_that_were_used_before(sources: tuple, tmp_path: Path) -> None:
    random = Extent(0, 0, NUM_BYTES)
    with SourceFiles(sources[0]) as files, Sink(tmp_path, lambda count, name: None, lambda file: None) as sink:
        gatherer = Gatherer(SourceReader(files), sink)
        for name, segments in (("first", [random, random]), ("second", [Padding(50_000_000)])):
            sink.open(name, 0)
            gatherer.copy(segments)
            sink.close()
        sink.finish()
    assert (tmp_path / "second").read_bytes() == bytes(50_000_000)
