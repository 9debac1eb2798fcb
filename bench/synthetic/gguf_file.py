"""Writes a synthetic model as one GGUF file (architecture qwen35moe), for runs of llama.cpp on the same shape.

Owns the GGUF names: Q4_0 everywhere but norms, routers and small vectors, which are F32. Needs the `gguf` package.
The weights are not those of the MLX folder: only the shape, the scale and the skew are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import noise
from .mlx_layout import Recipe
from .shapes import Shape
from .spare_cache import give_pages_back
from .tokenizer import CHAT_TEMPLATE, END_OF_TEXT_ID, END_OF_TURN_ID, NUM_BYTES, SPECIAL_TOKENS, vocabulary

BLOCK, BLOCK_BYTES = 32, 18  # Q4_0: 32 weights in one float16 scale and 16 bytes of codes
_NORMAL, _CONTROL = 1, 3  # GGUF token types


def q4_0_blocks(seed: int, name: str, shape: tuple[int, ...], std: float) -> NDArray[np.uint8]:
    """Random Q4_0 rows (..., columns / 32 * 18) uint8 with standard deviation std."""
    count, generator = prod(shape) // BLOCK, noise.generator_for(seed, name)
    blocks = np.empty((count, BLOCK_BYTES), np.uint8)
    spread = np.float32(0.1) * generator.standard_normal(count, dtype=np.float32)
    scales = np.exp(spread) * np.float32(std / noise.CODE_STD)
    # Codes span -8..7; scales of either sign cancel their mean of -0.5.
    scales *= 1 - 2 * (noise.random_bytes(generator, count) & 1).astype(np.float32)
    blocks[:, :2] = scales.astype(np.float16).view(np.uint8).reshape(count, 2)
    blocks[:, 2:] = noise.random_bytes(generator, count * 16).reshape(count, 16)
    return blocks.reshape(*shape[:-1], shape[-1] // BLOCK * BLOCK_BYTES)


class _Tensors:
    """Announces tensors to a GGUF writer, and keeps the recipes of their data in the same order."""

    def __init__(self, gguf: Any, writer: Any, seed: int) -> None:
        self._gguf, self._writer, self._seed = gguf, writer, seed
        self._recipes: list[Callable[[], NDArray[Any]]] = []

    def matrix(self, name: str, *shape: int, std: float | None = None) -> None:
        rows = (*shape[:-1], shape[-1] // BLOCK * BLOCK_BYTES)
        kind = self._gguf.GGMLQuantizationType.Q4_0
        self._writer.add_tensor_info(name, rows, np.dtype(np.uint8), prod(rows), raw_dtype=kind)
        spread = std or 1 / sqrt(shape[-1])
        self._recipes.append(lambda: q4_0_blocks(self._seed, name, shape, spread))

    def floats(self, name: str, values: NDArray[Any]) -> None:
        kind = self._gguf.GGMLQuantizationType.F32
        self._writer.add_tensor_info(name, values.shape, np.dtype(np.float32), values.size * 4, raw_dtype=kind)
        self._recipes.append(lambda: np.ascontiguousarray(values, np.float32))

    def write(self) -> None:
        for recipe in self._recipes:
            self._writer.write_tensor_data(recipe())
            for file in self._writer.fout:
                file.flush()
                give_pages_back(file.fileno())


def _add_shape(writer: Any, shape: Shape) -> None:
    writer.add_context_length(shape.ctx_tokens)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(shape.head_dim // 4)
    writer.add_rope_dimension_sections([*shape.rope_sections, 0])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_feed_forward_length(shape.expert_dim)
    writer.add_expert_shared_feed_forward_length(shape.shared_dim)
    writer.add_ssm_conv_kernel(shape.conv_kernel)
    writer.add_ssm_state_size(shape.linear_head_dim)
    writer.add_ssm_group_count(shape.linear_key_heads)
    writer.add_ssm_time_step_rank(shape.linear_value_heads)
    writer.add_ssm_inner_size(shape.linear_value_dim)
    writer.add_full_attention_interval(shape.full_interval)


def _add_tokenizer(writer: Any, size: int) -> None:
    num_special = len(SPECIAL_TOKENS)
    kinds = [_NORMAL] * NUM_BYTES + [_CONTROL] * num_special + [_NORMAL] * (size - NUM_BYTES - num_special)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary(size))
    writer.add_token_types(kinds)
    writer.add_token_merges(["a b"])  # llama.cpp refuses a vocabulary without any
    writer.add_eos_token_id(END_OF_TURN_ID)
    writer.add_bos_token_id(END_OF_TEXT_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_attention(out: _Tensors, shape: Shape, path: str, seed: int, *, is_full: bool) -> None:
    hidden, head, value = shape.hidden, shape.head_dim, shape.linear_value_dim
    if is_full:
        out.matrix(path + "attn_q.weight", 2 * shape.heads * head, hidden)
        out.matrix(path + "attn_k.weight", shape.kv_heads * head, hidden)
        out.matrix(path + "attn_v.weight", shape.kv_heads * head, hidden)
        out.matrix(path + "attn_output.weight", hidden, shape.heads * head)
        out.floats(path + "attn_q_norm.weight", np.ones(head))
        out.floats(path + "attn_k_norm.weight", np.ones(head))
        return
    generator = noise.generator_for(seed, path + "gdn")
    out.matrix(path + "attn_qkv.weight", shape.conv_dim, hidden)
    out.matrix(path + "attn_gate.weight", value, hidden)
    out.floats(path + "ssm_conv1d.weight", noise.conv_kernels(generator, shape.conv_dim, shape.conv_kernel))
    a_log, dt_bias = noise.delta_vectors(generator, shape.linear_value_heads)
    out.floats(path + "ssm_dt.bias", dt_bias)
    out.floats(path + "ssm_a", -np.exp(a_log))
    out.matrix(path + "ssm_beta.weight", shape.linear_value_heads, hidden)
    out.matrix(path + "ssm_alpha.weight", shape.linear_value_heads, hidden)
    out.floats(path + "ssm_norm.weight", np.ones(shape.linear_head_dim))
    out.matrix(path + "ssm_out.weight", hidden, value)


def _add_experts(out: _Tensors, recipe: Recipe, path: str) -> None:
    shape, seed, hidden = recipe.shape, recipe.seed, recipe.shape.hidden
    gate = noise.router_rows(seed, path + "gate", shape.experts, hidden, recipe.skew, recipe.router_std)
    out.floats(path + "ffn_gate_inp.weight", gate)
    out.floats(path + "ffn_gate_inp_shexp.weight", noise.router_rows(seed, path + "sgate", 1, hidden, 0.0, 1.0)[0])
    for kind, lead, width in (("shexp", (), shape.shared_dim), ("exps", (shape.experts,), shape.expert_dim)):
        out.matrix(f"{path}ffn_gate_{kind}.weight", *lead, width, hidden)
        out.matrix(f"{path}ffn_up_{kind}.weight", *lead, width, hidden)
        out.matrix(f"{path}ffn_down_{kind}.weight", *lead, hidden, width)


def write_file(recipe: Recipe, path: Path) -> int:
    """Write the whole model; the size of the file is returned. Raises ImportError without the gguf package."""
    import gguf

    shape = recipe.shape
    writer = gguf.GGUFWriter(path, "qwen35moe")
    writer.add_name("synthetic-qwen35moe")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    _add_shape(writer, shape)
    _add_tokenizer(writer, shape.vocab)
    out = _Tensors(gguf, writer, recipe.seed)
    out.matrix("token_embd.weight", shape.vocab, shape.hidden, std=1.0)
    out.floats("output_norm.weight", np.ones(shape.hidden))
    out.matrix("output.weight", shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        out.floats(prefix + "attn_norm.weight", np.ones(shape.hidden))
        out.floats(prefix + "post_attention_norm.weight", np.ones(shape.hidden))
        _add_attention(out, shape, prefix, recipe.seed, is_full=shape.is_full(layer))
        _add_experts(out, recipe, prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out.write()
    writer.close()
    return path.stat().st_size
