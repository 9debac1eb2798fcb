"""The readers, in Python and in C, with real files: order, cancelling, promotion, errors, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine.errors import ModelFileMissing, ReadFailed
from streamoe_engine.kernels import shared_library, unavailable_reason
from streamoe_engine.native_reader import NativeReader
from streamoe_engine.reader import Read, Reader, ReadsRecords, ReadState
from streamoe_engine.uncached import ALIGNMENT, UncachedFile, aligned_buffer, read_blocks

RECORD = 4 * ALIGNMENT
MakeReader = Callable[[int], ReadsRecords]
needs_library = pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())


def in_c(num_threads: int, *, starts: bool = True) -> NativeReader:
    lib = shared_library()
    assert lib is not None
    return NativeReader(lib, num_threads, starts=starts)


@pytest.fixture(params=[Reader, pytest.param(in_c, marks=needs_library)], ids=["python", "c"])
def reader_of(request: pytest.FixtureRequest) -> MakeReader:
    return request.param


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records"
    path.write_bytes(b"".join(bytes([number]) * RECORD for number in range(16)))
    return path


def make_read(file: UncachedFile, number: int, view: memoryview) -> Read:
    return Read(number, number, file, number * RECORD, view)


def test_every_read_lands_in_its_own_view(records: Path, reader_of: MakeReader) -> None:
    reader, file = reader_of(2), UncachedFile(records)
    buffer = aligned_buffer(16 * RECORD)
    reads = [make_read(file, n, buffer[n * RECORD : (n + 1) * RECORD]) for n in range(16)]
    reader.submit(reads[:8], demand=True)
    reader.submit(reads[8:], demand=False)
    reader.wait_for_all(reads)
    assert bytes(buffer) == records.read_bytes()
    reader.close()
    file.close()


class Gate:
    """A file whose reads wait for permission, so that a test decides what is queued and what runs."""

    def __init__(self, path: Path) -> None:
        import threading

        self.path, self.num_bytes = path, RECORD
        self.order: list[int] = []
        self._open = threading.Semaphore(0)
        self.started = threading.Semaphore(0)

    def read_into(self, view: memoryview, offset: int) -> None:
        self.started.release()
        self._open.acquire()
        self.order.append(offset // RECORD)

    def let(self, count: int) -> None:
        for _ in range(count):
            self._open.release()


def test_demand_goes_first_and_a_guess_can_be_cancelled_or_promoted(tmp_path: Path) -> None:
    reader, gate, view = Reader(1), Gate(tmp_path), aligned_buffer(RECORD)
    running, wrong, right, late = (make_read(gate, n, view) for n in range(4))  # type: ignore[arg-type]
    reader.submit([running], demand=True)
    gate.started.acquire()
    reader.submit([wrong, late, right], demand=False)
    assert not reader.cancel(running), "a read that has begun cannot be taken back"
    assert reader.cancel(wrong)
    assert not reader.cancel(wrong)
    reader.promote([right])
    gate.let(3)
    reader.wait_for_all([running, right, late])
    assert gate.order == [0, 2, 3]
    assert wrong.state is ReadState.CANCELLED
    reader.close()


def test_draining_drops_what_waits_and_ends_what_runs(tmp_path: Path) -> None:
    reader, gate, view = Reader(1), Gate(tmp_path), aligned_buffer(RECORD)
    running, waiting = (make_read(gate, n, view) for n in range(2))  # type: ignore[arg-type]
    reader.submit([running, waiting], demand=True)
    gate.started.acquire()
    gate.let(1)
    reader.drain()
    assert (running.state, waiting.state) == (ReadState.DONE, ReadState.CANCELLED)
    reader.close()


@needs_library
def test_in_c_demand_goes_first_and_a_guess_can_be_cancelled_or_promoted(records: Path) -> None:
    """Nothing starts before the threads do, and one thread reads in the order of the queue."""
    reader, file, buffer = in_c(1, starts=False), UncachedFile(records), aligned_buffer(16 * RECORD)
    reads = [make_read(file, n, buffer[n * RECORD : (n + 1) * RECORD]) for n in range(9)]
    reader.submit(reads[:5], demand=False)
    assert reader.cancel(reads[1])
    assert not reader.cancel(reads[1])
    reader.submit(reads[5:7], demand=True)
    reader.demand([reads[3], reads[0]], reads[7:8])
    reader.promote([reads[3]])  # again: it stays where it is
    reader.submit(reads[8:], demand=False)
    reader.look(reads[:1])
    assert not reads[0].is_done
    reader.start()
    left = [read for number, read in enumerate(reads) if number != 1]
    reader.wait_for_all(left)
    assert [read.key for read in sorted(left, key=lambda read: read.native.finished)] == [5, 6, 3, 0, 7, 2, 4, 8]
    assert not reader.cancel(reads[2]), "what is done cannot be taken back"
    assert reads[1].state is ReadState.CANCELLED and buffer[RECORD] == 0
    assert bytes(buffer[2 * RECORD : 9 * RECORD]) == records.read_bytes()[2 * RECORD : 9 * RECORD]
    reader.close()
    reader.close()
    file.close()


@needs_library
def test_in_c_what_waits_is_dropped_by_draining(records: Path) -> None:
    reader, file, buffer = in_c(2, starts=False), UncachedFile(records), aligned_buffer(16 * RECORD)
    reads = [make_read(file, n, buffer[n * RECORD : (n + 1) * RECORD]) for n in range(1, 9)]
    reader.submit(reads[:4], demand=False)
    reader.submit(reads[4:7], demand=True)
    reader.drain()
    reader.start()
    reader.submit(reads[7:], demand=True)
    reader.wait_for_any(reads)
    assert [read.is_done for read in reads] == [False] * 7 + [True]
    assert not any(buffer[: 8 * RECORD])
    reader.close()
    file.close()


@needs_library
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    demands=st.lists(st.booleans(), min_size=12, max_size=12),
    threads=st.integers(1, 4),
)
@settings(deadline=None, max_examples=40)
def test_in_c_any_mix_of_reads_lands_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], demands: list[bool], threads: int
) -> None:
    path = tmp_path_factory.mktemp("mix") / "file"
    content = os.urandom(sum(sizes) * ALIGNMENT - 100)  # the last block is short
    path.write_bytes(content)
    reader, file, buffer = in_c(threads), UncachedFile(path), aligned_buffer(sum(sizes) * ALIGNMENT)
    reads, start = [], 0
    for number, size in enumerate(sizes):
        reads.append(Read(number, number, file, start, buffer[start : start + size * ALIGNMENT]))
        reader.submit(reads[-1:], demand=demands[number])
        start += size * ALIGNMENT
    reader.promote(reads[::2])
    reader.wait_for_all(reads)
    assert all(read.error is None for read in reads)
    assert bytes(buffer[: len(content)]) == content
    reader.close()
    file.close()


def test_an_error_is_kept_with_its_read_and_the_reader_goes_on(records: Path, reader_of: MakeReader) -> None:
    os.truncate(records, 10 * RECORD)
    reader, file, buffer = reader_of(2), UncachedFile(records), aligned_buffer(RECORD)
    bad, good = make_read(file, 12, buffer), make_read(file, 3, buffer)
    reader.submit([bad], demand=True)
    reader.wait_for_any([bad])
    assert isinstance(bad.error, ReadFailed)
    assert "the file ends" in str(bad.error)
    assert (bad.error.path, bad.error.offset) == (records, 12 * RECORD)
    reader.submit([good], demand=True)
    reader.wait_for_all([good])
    assert good.error is None
    assert bytes(buffer[:4]) == b"\x03" * 4
    reader.close()
    file.close()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match="nothing-here"):
        UncachedFile(tmp_path / "nothing-here")


@given(size=st.integers(1, 5 * ALIGNMENT), data=st.data())
@settings(deadline=None, max_examples=60)
def test_blocks_give_any_span_of_any_file(tmp_path_factory, size: int, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("span") / "file"
    content = os.urandom(size)
    path.write_bytes(content)
    start = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, size - start))
    pieces = [bytes(piece) for piece in read_blocks(path, start, length, aligned_buffer(2 * ALIGNMENT))]
    assert b"".join(pieces) == content[start : start + length]


def test_reads_leave_no_pages_in_the_cache(records: Path) -> None:
    """mincore, through the cached-pages view of the file itself: direct reads add none."""
    import mmap

    data = records.read_bytes()
    fd = os.open(records, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with UncachedFile(records) as file:
        buffer = aligned_buffer(len(data))
        file.read_into(buffer, 0)
    mapped = mmap.mmap(fd, len(data), prot=mmap.PROT_READ)
    assert bytes(buffer) == data
    assert resident_pages(mapped, len(data)) == 0
    mapped.close()
    os.close(fd)


def resident_pages(mapped, length: int) -> int:
    import ctypes

    import numpy as np

    libc = ctypes.CDLL(None, use_errno=True)
    vector = (ctypes.c_ubyte * (length // 4096))()
    address = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), vector) == 0
    return sum(page & 1 for page in vector)
