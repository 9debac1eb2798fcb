"""What the machine itself can do, measured in the same run: the disk into huge pages, and memory.

    python -m bench.peers.ceilings FOLDER

Both figures are limits: a token's records cannot come faster than the first, its weights not be read faster than the
second. Refuses to know engines.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamoe_coordinator.doctor.disk import default_probe
from streamoe_engine.manifest import MANIFEST_FILE, read_manifest

_ARRAY_BYTES = 2**30
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Ceilings:
    """10**9 bytes a second. disk: random reads past the page cache into huge pages, by the better of one and two
    threads; ordinary: the same into ordinary pages. memory: read by all threads. source: what was read, in words."""

    disk_gb_per_s: float
    ordinary_gb_per_s: float
    memory_gb_per_s: float
    source: str

    def __str__(self) -> str:
        disk = f"disk {self.disk_gb_per_s:.2f} GB/s into huge pages, {self.ordinary_gb_per_s:.2f} into ordinary ones"
        return f"{disk} ({self.source}), memory {self.memory_gb_per_s:.1f} GB/s"

    def best(self, other: Ceilings) -> Ceilings:
        """The higher of two measurements: a neighbour can only lower one."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("disk_gb_per_s", "ordinary_gb_per_s"))
        return Ceilings(*map(max, pairs), max(self.memory_gb_per_s, other.memory_gb_per_s), self.source)


def measure(folder: Path, num_threads: int) -> Ceilings:
    """folder: a model folder, whose records are read, or any other, where a file is written for the purpose.

    Takes about three seconds and 1 GiB of memory. Raises StreamoeError and OSError.
    """
    manifest = read_manifest(folder) if (folder / MANIFEST_FILE).is_file() else None
    source, probe = default_probe(folder, manifest, shutil.disk_usage(folder).free)
    speeds = probe()
    best = {
        pages: max((speed.gb_per_s for speed in speeds if speed.pages == pages), default=0.0)
        for pages in ("huge", "ordinary")
    }
    return Ceilings(best["huge"], best["ordinary"], memory_gb_per_s(num_threads), source)


def memory_gb_per_s(num_threads: int) -> float:
    """The best of several passes over an array larger than any cache, a part to each thread."""
    parts = np.array_split(np.ones(_ARRAY_BYTES // 8, np.uint64), num_threads)
    return _ARRAY_BYTES / min(_pass_s(parts) for _ in range(_ROUNDS)) / 1e9


def _pass_s(parts: list[NDArray[np.uint64]]) -> float:
    # Of NumPy's reductions "or" is the fastest: 28 GB/s by two threads where sums stop at 20.
    threads = [threading.Thread(target=np.bitwise_or.reduce, args=(part,)) for part in parts]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    print(measure(Path(sys.argv[1]), num_threads=2))
