"""New files past the page cache: content, exact lengths, what stays in the cache, and every refusal mapped."""

from __future__ import annotations

import ctypes
import mmap
import resource
import sys
from pathlib import Path

import pytest

from streamoe_engine import uncached_write
from streamoe_engine.errors import ConversionFailed
from streamoe_engine.huge_pages import huge_buffer
from streamoe_engine.sizes import MIB
from streamoe_engine.uncached_write import UncachedWriter


def write_file(path: Path, num_bytes: int) -> bytes:
    """Write num_bytes of a pattern in blocks of 1 MiB; returns the pattern."""
    buffer = huge_buffer(MIB)
    buffer[:] = bytes(range(256)) * (MIB // 256)
    writer = UncachedWriter(path, num_bytes)
    for offset in range(0, num_bytes, MIB):
        writer.write(buffer[: uncached_write.padded(min(MIB, num_bytes - offset))], offset)
    writer.finish(num_bytes)
    return (bytes(buffer) * (num_bytes // MIB + 1))[:num_bytes]


def resident_pages(path: Path) -> int:
    """Pages of a file that the page cache holds, by mincore; mapping alone brings none in."""
    libc, num_bytes = ctypes.CDLL(None, use_errno=True), path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), num_bytes, flags=mmap.MAP_PRIVATE) as mapping:
        flags = (ctypes.c_ubyte * (-(-num_bytes // mmap.PAGESIZE)))()
        place = ctypes.c_char.from_buffer(mapping)
        libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        assert libc.mincore(ctypes.addressof(place), num_bytes, flags) == 0
        del place
        return sum(flag & 1 for flag in flags)


@pytest.mark.parametrize("num_bytes", [0, 1, 4095, 4096, MIB, 3 * MIB + 5])
def test_a_file_has_the_bytes_and_the_length(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "new" / "file"
    wanted = write_file(path, num_bytes)
    assert path.read_bytes() == wanted


def test_an_old_file_is_emptied_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    wanted = write_file(tmp_path / "file", 5)
    assert (tmp_path / "file").read_bytes() == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="mincore of a file's pages is read as Linux gives it")
@pytest.mark.parametrize("is_direct", [True, False])
def test_nothing_stays_in_the_page_cache(tmp_path: Path, is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_direct:
        monkeypatch.setattr(uncached_write, "_O_DIRECT", 0)  # as on a file system that has no direct transfers
    write_file(tmp_path / "file", 8 * MIB)
    assert resident_pages(tmp_path / "file") <= 8  # the kernel keeps a few pages that it is not done with
    (tmp_path / "plain").write_bytes(bytes(8 * MIB))
    assert resident_pages(tmp_path / "plain") > 1000


def test_refusals_name_the_file_and_the_figure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConversionFailed, match=r"creating .*file/below failed at 0 B of 7 B"):
        UncachedWriter(tmp_path / "file" / "below", 7)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = UncachedWriter(tmp_path / "limited", 123 * MIB)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
    try:
        with pytest.raises(ConversionFailed, match=f"limited failed at {2 * MIB} B of {123 * MIB} B: File too large"):
            writer.write(huge_buffer(4 * MIB), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        writer.abandon()
