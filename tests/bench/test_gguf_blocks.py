"""The GGUF encodings of noise, decoded by the format's own rule."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from bench.synthetic import noise
from bench.synthetic.gguf_blocks import BLOCK, ENCODINGS, draw_q4_0, draw_q4_1
from bench.synthetic.gguf_file import _value_head_order
from bench.synthetic.mlx_layout import Recipe, _matrix
from bench.synthetic.shapes import PRESETS


def halves(two_bytes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(two_bytes).view(np.float16).astype(np.float32)


def codes(blocks: np.ndarray) -> np.ndarray:
    """Byte i of a block holds the codes of weights i and i + 16."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=-1).astype(np.float32)


def test_q4_1_has_the_weights_of_the_mlx_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, recipe = (3, 8, 256), Recipe(PRESETS["tiny"], seed=5)
    weight, scales, biases = (np.concatenate(list(tensor.pieces())) for tensor in _matrix(recipe, "m", *shape))
    packed = mx.array(weight.view(np.uint32).reshape(3, 8, 32))
    groups = [mx.array(noise.bf16_floats(part).reshape(3, 8, 4)) for part in (scales, biases)]
    expected = np.array(mx.dequantize(packed, *groups, group_size=64, bits=4))
    for piece_bytes in (noise.PIECE_BYTES, 256):
        monkeypatch.setattr(noise, "PIECE_BYTES", piece_bytes)
        blocks = draw_q4_1(5, "m", shape, 1 / 16)
        assert blocks.shape == (3, 8, 256 // BLOCK, ENCODINGS["q4_1"].block_bytes)
        found = codes(blocks[..., 4:]) * halves(blocks[..., :2]) + halves(blocks[..., 2:4])
        assert np.abs(found.reshape(shape) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_q4_0_has_the_mean_and_deviation_asked_for() -> None:
    blocks = draw_q4_0(0, "m", (64, 4096), 0.02)
    values = (codes(blocks[..., 2:]) - 8) * halves(blocks[..., :2])
    assert abs(values.mean()) < 0.001
    assert values.std() == pytest.approx(0.02, rel=0.03)


def test_value_heads_of_one_key_head_are_a_key_head_count_apart() -> None:
    order, shape = _value_head_order(PRESETS["qwen36-35b"]), PRESETS["qwen36-35b"]
    share = shape.linear_value_heads // shape.linear_key_heads
    assert sorted(order) == list(range(shape.linear_value_heads))
    # llama.cpp's head p uses key head p modulo their number, MLX's head h uses h // share.
    assert all(order[p] // share == p % shape.linear_key_heads for p in range(shape.linear_value_heads))


def test_eight_bit_codes_come_back_within_half_a_step() -> None:
    values = noise.router_rows(0, "r", 16, 256, 0.38, 1.0)
    back = noise.dequantize_8bit(*noise.quantize_8bit(values))
    assert np.abs(back - values).max() < np.ptp(values, axis=1).max() / 255
