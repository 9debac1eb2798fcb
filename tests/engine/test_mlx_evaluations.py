"""A decode step through MLX waits once a layer, and begins the experts' products before it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.running import open_band

NUM_LAYERS = 4


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("guess", ["cross-layer", "none"])
def test_one_wait_a_layer(
    tiny_folder: Callable[..., tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch, compute_dtype: str, guess: str
) -> None:
    with open_band(tiny_folder("qwen3_moe")[1], 100, compute_dtype=compute_dtype, guess=guess) as band:
        state = band.new_state()
        band.run(state, np.arange(5, dtype=np.int32))
        band.run(state, np.array([7], dtype=np.int32))  # views of the pool are built once
        waits = counted(monkeypatch, "eval")
        begun = counted(monkeypatch, "async_eval")
        band.run(state, np.array([9], dtype=np.int32), "hidden")
    assert len(waits) == NUM_LAYERS + 1  # one for each routing, one for the result
    assert len(begun) == NUM_LAYERS
    assert all(y.shape == (2, 64) for (y,) in begun)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of mx.NAME from now on."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(mx, name)

    def noted(*arrays: Any) -> None:
        calls.append(arrays)
        real(*arrays)

    monkeypatch.setattr(mx, name, noted)
    return calls
