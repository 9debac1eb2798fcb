"""The engine's logits against those of transformers in float32, on committed checkpoints (tests/fixtures).

Two independent implementations that agree in every logit agree in what the model is; mlx-lm's own agreement is
checked first, so that a failure tells which of the two links broke.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file

from streamoe_engine.band import Band, BandOptions
from streamoe_engine.checkpoint import ConvertOptions, convert
from streamoe_engine.sizes import GIB
from streamoe_engine.skeleton import build_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
FAMILIES = ("deepseek_v3", "olmoe", "qwen3_5_moe", "qwen3_moe")
# mlx-lm's own distance is at most 6e-6 on these (logit std 1.0); a rotary base wrong by 1 % moves them by 2e-3.
TOLERANCE = 1e-4


def expected(family: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per sequence: ids (tokens,) int32 and logits (tokens, vocabulary) float32."""
    stored = load_file(FIXTURES / family / "expected.safetensors")
    return list(zip(stored["ids"], stored["logits"], strict=True))


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=["mlx", "auto"])
def band(family: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Band]:
    """Through MLX, and through the C kernels where they can run the family."""
    folder = tmp_path_factory.mktemp(family) / "model"
    convert(FIXTURES / family, folder, ConvertOptions(quantize="keep"))
    options = BandOptions(budget_bytes=GIB, ctx_tokens=64, guess="cross-layer", backend=request.param)
    opened = Band.open(folder, options)
    yield opened
    opened.close()


def test_mlx_lm_agrees_with_transformers(family: str) -> None:
    model = build_model(json.loads((FIXTURES / family / "config.json").read_text()))
    weights = model.sanitize(dict(mx.load(str(FIXTURES / family / "model.safetensors"))))
    model.load_weights(list(weights.items()))
    model.set_dtype(mx.float32)
    for ids, logits in expected(family):
        found = np.array(model(mx.array(ids)[None])[0])
        np.testing.assert_allclose(found, logits, rtol=0, atol=TOLERANCE)


def logits_in_chunks(band: Band, ids: np.ndarray, chunk_tokens: int) -> np.ndarray:
    """Logits (tokens, vocabulary) float32 of a new sequence, run chunk_tokens at a time."""
    state = band.new_state()
    chunks = [ids[start : start + chunk_tokens] for start in range(0, len(ids), chunk_tokens)]
    found = np.concatenate([band.run(state, chunk, want="all_logits") for chunk in chunks])
    assert found.dtype == np.float32
    return found


@pytest.mark.parametrize("chunk_tokens", [24, 1, 7])
def test_the_engine_gives_the_logits_of_transformers(family: str, band: Band, chunk_tokens: int) -> None:
    for ids, logits in expected(family):
        np.testing.assert_allclose(logits_in_chunks(band, ids, chunk_tokens), logits, rtol=0, atol=TOLERANCE)
