"""What is left in the page cache of a file written by the synthetic writer."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.synthetic import spare_cache
from bench.synthetic.spare_cache import CacheSparingFile

NUM_BYTES = 8 * 2**20


def resident_pages(path: Path) -> int:
    """Pages of a file that the kernel holds in its cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        answer = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        failed = libc.mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), answer)
        del view
    assert not failed, ctypes.get_errno()
    return sum(page & 1 for page in answer)


def file_system_gives_pages_back(path: Path) -> bool:
    """Whether dropping the pages of a cached file works where it lies; tmpfs has nowhere else to keep them."""
    assert resident_pages(path) > 0
    with path.open("rb") as file:
        spare_cache.give_pages_back(file.fileno())
    return resident_pages(path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not cache these writes at all, and has no DONTNEED")
def test_nothing_of_it_stays_in_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_cache, "GIVE_BACK_BYTES", 2**20)
    data = np.random.default_rng(0).integers(0, 256, NUM_BYTES, np.uint8)
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(data.tobytes())
    if not file_system_gives_pages_back(ordinary):
        pytest.skip(f"the file system of {tmp_path} lives in memory: its pages cannot be given back")
    with CacheSparingFile(tmp_path / "spared") as file:
        file.write(data[:1000])
        file.write(data[1000:])
    assert resident_pages(tmp_path / "spared") == 0
    assert (tmp_path / "spared").read_bytes() == data.tobytes()
