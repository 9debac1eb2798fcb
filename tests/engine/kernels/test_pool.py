"""The thread pool and the way to it: made and ended often, shared, chosen by name."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.errors import PlatformUnsupported, UsageError
from tests.engine.kernels.packed import random_matrix
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())


def loaded(threads: int) -> kernels.Kernels:
    made = kernels.load(threads)
    assert made is not None
    return made


TASKS = Path("/proc/self/task")


def test_two_callers_at_once_both_get_their_answer() -> None:
    random, pool = np.random.default_rng(0), loaded(3)
    packed = random_matrix(random, 700, 512, (4, 64, "BF16"))
    xs = [random.standard_normal((1, 512)).astype(np.float32) for _ in range(8)]
    expected = [np.empty((1, 700), np.float32) for _ in xs]
    for x, out in zip(xs, expected, strict=True):
        pool.matmul(packed.matrix, x, out)

    def run(i: int) -> bool:
        out = np.empty((1, 700), np.float32)
        pool.matmul(packed.matrix, xs[i % 8], out)
        return out.tobytes() == expected[i % 8].tobytes()

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(run, range(2000)))
    pool.close()


@pytest.mark.skipif(not TASKS.exists(), reason="counts threads in /proc")
def test_threads_end_with_the_kernels() -> None:
    before = len(list(TASKS.iterdir()))
    for threads in (1, 2, 5) * 20:
        made = loaded(threads)
        made.close()
        made.close()
    # A joined thread may be seen for a moment longer.
    eventually(lambda: len(list(TASKS.iterdir())) <= before)


def test_closed_kernels_refuse() -> None:
    made = loaded(2)
    made.close()
    packed = random_matrix(np.random.default_rng(0), 8, 64, (4, 64, "BF16"))
    with pytest.raises(AssertionError, match="closed"):
        made.matmul(packed.matrix, np.zeros((1, 64), np.float32), np.zeros((1, 8), np.float32))


def test_the_lock_is_free_while_c_runs() -> None:
    random, pool = np.random.default_rng(0), loaded(1)
    packed = random_matrix(random, 512, 2048, (4, 64, "BF16"))
    x, out = np.zeros((512, 2048), np.float32), np.zeros((512, 512), np.float32)
    started, turns = threading.Event(), 0

    def compute() -> None:
        started.set()
        pool.matmul(packed.matrix, x, out)

    worker = threading.Thread(target=compute)
    worker.start()
    started.wait()
    while worker.is_alive():
        turns += 1
    assert turns > 1
    pool.close()


def test_an_unknown_instruction_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.ISA_VARIABLE, "sse9")
    with pytest.raises(UsageError, match="STREAMOE_ISA=sse9 is no instruction set"):
        kernels.load(1)


def test_an_instruction_set_of_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = next(name for name in kernels.ISA_NAMES if name not in kernels.available_isas())
    monkeypatch.setenv(kernels.ISA_VARIABLE, missing)
    with pytest.raises(PlatformUnsupported, match=f"this processor has no {missing}"):
        kernels.load(1)


def test_arrays_of_another_shape_or_type_are_refused() -> None:
    pool, packed = loaded(1), random_matrix(np.random.default_rng(0), 8, 64, (4, 64, "BF16"))
    good, out = np.zeros((2, 64), np.float32), np.zeros((2, 8), np.float32)
    for x in (good.astype(np.float64), np.zeros((2, 128), np.float32)[:, ::2], np.zeros((2, 32), np.float32)):
        with pytest.raises(AssertionError):
            pool.matmul(packed.matrix, x, out)
    with pytest.raises(AssertionError):
        pool.matmul(packed.matrix, good, np.zeros((1, 8), np.float32))
    pool.close()
