"""Speed of the C kernels on this machine, as tables: decode in GB/s of packed weights, prefill in GFLOP/s.

    python bench/kernels.py                        every thread count from 1 to the processor's, best instruction set
    python bench/kernels.py --threads 2 --isa avx2 --bits 3

Weights are noise in huge pages, more of them than the caches hold, visited in turn, so that decode reads memory.
The smallest of many times is shown, and the median: on a busy machine they differ.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from streamoe_engine import kernels
from streamoe_engine.huge_pages import huge_buffer
from streamoe_engine.kernels import Expert, Group, Kernels, Matrix

MIB = 1024**2
DECODE = ((2048, 512), (512, 2048), (2048, 8192), (4096, 2048), (2048, 248320))
PREFILL = ((2048, 512), (512, 2048), (2048, 8192))
EXPERT_WIDTH, EXPERT_HIDDEN, TOP_K = 2048, 512, 8


class Noise:
    """A buffer of weights; matrices are laid over it, one after another."""

    def __init__(self, num_bytes: int, bits: int) -> None:
        self.bits, self._memory = bits, np.frombuffer(huge_buffer(num_bytes), np.uint8)
        noise = np.random.default_rng(0).integers(0, 256, 64 * MIB, np.uint8)
        # Bfloat16 numbers of a sane size: infinities and subnormals are slow on some processors (twofold on Intel's).
        noise[1::2] = noise[1::2] & 0x83 | 0x3C
        for start in range(0, num_bytes, len(noise)):
            self._memory[start : start + len(noise)] = noise[: num_bytes - start]
        self.address: int = self._memory.__array_interface__["data"][0]

    def matrix(self, cols: int, rows: int, start: int) -> tuple[Matrix, int]:
        """A matrix (group 64, bfloat16 scales) at `start`, and where it ends."""
        codes, scales = rows * cols * self.bits // 8, rows * cols // 64 * 2
        made = Matrix(self.bits, 64, rows, cols, "BF16", start, start + codes, start + codes + scales)
        return made, start + codes + 2 * scales

    def matrices(self, cols: int, rows: int, most: int) -> tuple[list[Matrix], int]:
        """As many matrices as the buffer holds, and the bytes of one."""
        _, num_bytes = self.matrix(cols, rows, 0)
        count = min(most, len(self._memory) // num_bytes)
        return [self.matrix(cols, rows, self.address + i * num_bytes)[0] for i in range(count)], num_bytes

    def expert(self) -> tuple[Expert, list[int]]:
        """A Qwen3.6-sized expert, and the addresses of all records that the buffer holds."""
        gate, end = self.matrix(EXPERT_WIDTH, EXPERT_HIDDEN, 0)
        up, end = self.matrix(EXPERT_WIDTH, EXPERT_HIDDEN, end)
        down, end = self.matrix(EXPERT_HIDDEN, EXPERT_WIDTH, end)
        return Expert(gate, up, down), [self.address + i * end for i in range(len(self._memory) // end)]


def times(run: Callable[[int], None], count: int, seconds: float) -> tuple[float, float]:
    """Smallest and median time of run(0), run(1), ..., run(count - 1), again and again."""
    seen: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(seen) < 3:
        start = time.perf_counter()
        run(len(seen) % count)
        seen.append(time.perf_counter() - start)
    return min(seen), median(seen)


def row(name: str, pair: tuple[float, float], amount: float, unit: str) -> None:
    """One line of the table; amount is in units of 1e9 a call."""
    best, middle = pair
    print(f"  {name:<26} {best * 1e3:9.3f} {middle * 1e3:9.3f} ms {amount / best:8.1f} {amount / middle:8.1f} {unit}")


def decode(native: Kernels, noise: Noise, seconds: float) -> None:
    for cols, rows in DECODE:
        matrices, num_bytes = noise.matrices(cols, rows, 500)
        x, out = np.ones((1, cols), np.float32), np.empty((1, rows), np.float32)
        pair = times(lambda i, m=matrices, x=x, out=out: native.matmul(m[i], x, out), len(matrices), seconds)
        row(f"{cols} -> {rows}", pair, num_bytes / 1e9, "GB/s")
    expert, records = noise.expert()
    picks = [np.random.default_rng(i).choice(records, TOP_K, replace=False).tolist() for i in range(200)]
    x, hidden = np.ones((1, EXPERT_WIDTH), np.float32), np.empty((TOP_K, EXPERT_HIDDEN), np.float32)
    out = np.empty((TOP_K, EXPERT_WIDTH), np.float32)
    pair = times(lambda i: native.expert_token(expert, picks[i], x, hidden, out), len(picks), seconds)
    row(f"{TOP_K} experts", pair, TOP_K * (records[1] - records[0]) / 1e9, "GB/s")


def prefill(native: Kernels, noise: Noise, tokens: Sequence[int], seconds: float) -> None:
    for cols, rows in PREFILL:
        matrices, _ = noise.matrices(cols, rows, 50)
        for count in tokens:
            x, out = np.ones((count, cols), np.float32), np.empty((count, rows), np.float32)
            pair = times(lambda i, m=matrices, x=x, out=out: native.matmul(m[i], x, out), len(matrices), seconds)
            row(f"{cols} -> {rows}, {count} rows", pair, 2 * count * rows * cols / 1e9, "GFLOP/s")
    expert, records = noise.expert()
    for count in tokens:
        groups = [Group(record, i * count, count) for i, record in enumerate(records[:64])]
        x, hidden = (np.ones((64 * count, width), np.float32) for width in (EXPERT_WIDTH, EXPERT_HIDDEN))
        out = np.empty_like(x)
        pair = times(lambda _, g=groups, x=x, h=hidden, out=out: native.expert_rows(expert, g, x, h, out), 1, seconds)
        row(f"64 experts, {count} rows each", pair, 64 * 6 * count * EXPERT_WIDTH * EXPERT_HIDDEN / 1e9, "GFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, help="only this many")
    parser.add_argument("--isa", choices=kernels.ISA_NAMES, default="", help="instead of the best")
    parser.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4)
    parser.add_argument("--rows", type=int, nargs="*", default=[4, 16, 64, 256], help="tokens of the prefill table")
    parser.add_argument("--mib", type=int, default=640, help="size of the weight buffer")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each line")
    arguments = parser.parse_args()
    os.environ[kernels.ISA_VARIABLE] = arguments.isa
    noise = Noise(arguments.mib * MIB, arguments.bits)
    for threads in [arguments.threads] if arguments.threads else range(1, (os.cpu_count() or 1) + 1):
        native = kernels.load(threads)
        if native is None:
            raise SystemExit(kernels.unavailable_reason())
        print(f"{native.isa}, {threads} threads, {arguments.bits} bits" + " " * 13 + "best    median")
        decode(native, noise, arguments.seconds)
        prefill(native, noise, arguments.rows, arguments.seconds)
        native.close()


if __name__ == "__main__":
    main()
