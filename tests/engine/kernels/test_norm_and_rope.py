"""The norm and the rotation angles by themselves, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from streamoe_engine import kernels
from streamoe_engine.kernels.layer_calls import LayerCalls

pytestmark = pytest.mark.skipif(bool(kernels.unavailable_reason()), reason=kernels.unavailable_reason())


@pytest.fixture(params=kernels.available_isas())
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LayerCalls]:
    monkeypatch.setenv(kernels.ISA_VARIABLE, request.param)
    made = kernels.load(2)
    assert made is not None
    yield LayerCalls(made)
    made.close()


@pytest.mark.parametrize("width", [16, 48, 80, 2048])
@pytest.mark.parametrize("rows", [1, 3, 200])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_norm(calls: LayerCalls, width: int, rows: int, size: float) -> None:
    random = np.random.default_rng(width)
    x = (size * random.standard_normal((rows, width))).astype(np.float32)
    weight, out = random.standard_normal(width).astype(np.float32), np.empty_like(x)
    calls.rms_norm(x, weight, 1e-6, out)
    exact = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6) * weight
    assert np.allclose(out, exact, rtol=1e-6, atol=0)
    one_by_one = np.empty_like(x)
    for row in range(rows):
        calls.rms_norm(x[row : row + 1], weight, 1e-6, one_by_one[row : row + 1])
    assert one_by_one.tobytes() == out.tobytes()
    calls.rms_norm(x, weight, 1e-6, x)
    assert x.tobytes() == out.tobytes()


def test_norm_passes_not_a_number_on(calls: LayerCalls) -> None:
    x = np.ones((1, 64), np.float32)
    x[0, 40] = np.nan
    calls.rms_norm(x, np.ones(64, np.float32), 1e-6, x)
    assert np.isnan(x).all()


def test_rope_angles_are_exact_far_out(calls: LayerCalls) -> None:
    positions, half = np.array([0, 1, 4095, 131071, 1_000_000], np.int32), 32
    table = np.empty((len(positions), 2 * half), np.float32)
    calls.rope_table(positions, half, 1e7, table)
    angles = positions[:, None] * 1e7 ** (-np.arange(half) / half)
    assert np.abs(table - np.concatenate([np.cos(angles), np.sin(angles)], axis=1)).max() < 1e-7
