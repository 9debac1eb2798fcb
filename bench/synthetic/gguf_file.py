"""Writes a synthetic model as one GGUF file (architecture qwen35moe), for runs of llama.cpp on the same model.

Owns the GGUF names and llama.cpp's order of value heads; norms, routers and small vectors are F32. Needs the `gguf`
package. Refuses to know how a matrix is encoded: Q4_0 has the bytes of the MLX folder, Q4_1 its very weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import noise
from .gguf_blocks import BLOCK, ENCODINGS, Encoding, EncodingName
from .mlx_layout import ROOT, Recipe
from .shapes import Shape
from .spare_cache import give_pages_back
from .tokenizer import CHAT_TEMPLATE, END_OF_TEXT_ID, END_OF_TURN_ID, NUM_BYTES, SPECIAL_TOKENS, vocabulary

PAGE_BYTES = 4096
_NORMAL, _CONTROL = 1, 3  # GGUF token types


class _Tensors:
    """Announces tensors to a GGUF writer, and keeps the recipes of their data in the same order."""

    def __init__(self, gguf: Any, writer: Any, recipe: Recipe, encoding: Encoding) -> None:
        self._writer, self._seed, self._encoding = writer, recipe.seed, encoding
        self._float_kind = gguf.GGMLQuantizationType.F32
        self._matrix_kind = gguf.GGMLQuantizationType[encoding.gguf_name]
        self._recipes: list[Callable[[], NDArray[Any]]] = []

    def matrix(
        self,
        name: str,
        source: str,
        *shape: int,
        std: float | None = None,
        rows: NDArray[np.intp] | slice = slice(None),
        columns: NDArray[np.intp] | slice = slice(None),
    ) -> None:
        """source: its path in the MLX folder. rows: which of the source's rows come in which order; columns: the
        same for its blocks of BLOCK columns."""
        stored = (*shape[:-1], shape[-1] // BLOCK * self._encoding.block_bytes)
        self._writer.add_tensor_info(name, stored, np.dtype(np.uint8), prod(stored), raw_dtype=self._matrix_kind)
        spread, draw = std or 1 / sqrt(shape[-1]), self._encoding.draw

        def drawn() -> NDArray[np.uint8]:
            blocks = draw(self._seed, source, shape, spread)
            return np.ascontiguousarray(blocks[..., rows, :, :][..., columns, :]).reshape(stored)

        self._recipes.append(drawn)

    def floats(self, name: str, values: NDArray[Any]) -> None:
        shape, dtype = values.shape, np.dtype(np.float32)
        self._writer.add_tensor_info(name, shape, dtype, values.size * 4, raw_dtype=self._float_kind)
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


def _value_head_order(shape: Shape) -> NDArray[np.intp]:
    # MLX keeps the value heads of a key head together; llama.cpp repeats the key heads over and over instead.
    key_heads = shape.linear_key_heads
    return np.arange(shape.linear_value_heads).reshape(key_heads, -1).T.ravel()


def _add_full_attention(out: _Tensors, shape: Shape, path: str, source: str) -> None:
    hidden, head = shape.hidden, shape.head_dim
    out.matrix(path + "attn_q.weight", source + "q_proj", 2 * shape.heads * head, hidden)
    out.matrix(path + "attn_k.weight", source + "k_proj", shape.kv_heads * head, hidden)
    out.matrix(path + "attn_v.weight", source + "v_proj", shape.kv_heads * head, hidden)
    out.matrix(path + "attn_output.weight", source + "o_proj", hidden, shape.heads * head)
    out.floats(path + "attn_q_norm.weight", np.ones(head))
    out.floats(path + "attn_k_norm.weight", np.ones(head))


def _add_linear_attention(out: _Tensors, recipe: Recipe, path: str, source: str) -> None:
    shape, seed = recipe.shape, recipe.seed
    hidden, value, head = shape.hidden, shape.linear_value_dim, shape.linear_head_dim
    heads = _value_head_order(shape)
    values = (heads[:, None] * head + np.arange(head)).ravel()
    channels = np.concatenate([np.arange(2 * shape.linear_key_dim), 2 * shape.linear_key_dim + values])
    blocks = values[::BLOCK] // BLOCK
    out.matrix(path + "attn_qkv.weight", source + "in_proj_qkv", shape.conv_dim, hidden, rows=channels)
    out.matrix(path + "attn_gate.weight", source + "in_proj_z", value, hidden, rows=values)
    kernels = noise.conv_kernels(noise.generator_for(seed, source + "conv1d"), shape.conv_dim, shape.conv_kernel)
    out.floats(path + "ssm_conv1d.weight", noise.as_bf16(kernels)[channels])
    a_log, dt_bias = noise.delta_vectors(noise.generator_for(seed, source + "A_log"), shape.linear_value_heads)
    out.floats(path + "ssm_dt.bias", noise.as_bf16(dt_bias)[heads])
    out.floats(path + "ssm_a", -np.exp(a_log)[heads])
    out.matrix(path + "ssm_beta.weight", source + "in_proj_b", shape.linear_value_heads, hidden, rows=heads)
    out.matrix(path + "ssm_alpha.weight", source + "in_proj_a", shape.linear_value_heads, hidden, rows=heads)
    out.floats(path + "ssm_norm.weight", np.ones(head))
    out.matrix(path + "ssm_out.weight", source + "out_proj", hidden, value, columns=blocks)


def _add_experts(out: _Tensors, recipe: Recipe, path: str, source: str) -> None:
    shape, hidden = recipe.shape, recipe.shape.hidden
    for name, noise_name, rows, skew, std in (
        ("ffn_gate_inp", "gate", shape.experts, recipe.skew, recipe.router_std),
        ("ffn_gate_inp_shexp", "sgate", 1, 0.0, 1.0),
    ):
        drawn = noise.router_rows(recipe.seed, source + noise_name, rows, hidden, skew, std)
        values = noise.dequantize_8bit(*noise.quantize_8bit(drawn))
        out.floats(f"{path}{name}.weight", values if rows > 1 else values[0])
    for kind, holder, lead, width in (
        ("shexp", "shared_expert.", (), shape.shared_dim),
        ("exps", "switch_mlp.", (shape.experts,), shape.expert_dim),
    ):
        out.matrix(f"{path}ffn_gate_{kind}.weight", source + holder + "gate_proj", *lead, width, hidden)
        out.matrix(f"{path}ffn_up_{kind}.weight", source + holder + "up_proj", *lead, width, hidden)
        out.matrix(f"{path}ffn_down_{kind}.weight", source + holder + "down_proj", *lead, hidden, width)


def _add_layer(out: _Tensors, recipe: Recipe, layer: int) -> None:
    shape, path, source = recipe.shape, f"blk.{layer}.", f"{ROOT}model.layers.{layer}."
    out.floats(path + "attn_norm.weight", np.ones(shape.hidden))
    out.floats(path + "post_attention_norm.weight", np.ones(shape.hidden))
    if shape.is_full(layer):
        _add_full_attention(out, shape, path, source + "self_attn.")
    else:
        _add_linear_attention(out, recipe, path, source + "linear_attn.")
    _add_experts(out, recipe, path, source + "mlp.")


def write_file(recipe: Recipe, path: Path, encoding_name: EncodingName = "q4_0") -> int:
    """Write the whole model; the size of the file is returned. Raises ImportError without the gguf package."""
    import gguf

    shape, encoding = recipe.shape, ENCODINGS[encoding_name]
    writer = gguf.GGUFWriter(path, "qwen35moe")
    writer.add_name("synthetic-qwen35moe")
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{encoding.gguf_name}"])
    _add_shape(writer, shape)
    _add_tokenizer(writer, shape.vocab)
    out = _Tensors(gguf, writer, recipe, encoding)
    out.matrix("token_embd.weight", ROOT + "model.embed_tokens", shape.vocab, shape.hidden, std=1.0)
    out.floats("output_norm.weight", np.ones(shape.hidden))
    out.matrix("output.weight", ROOT + "lm_head", shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        _add_layer(out, recipe, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out.write()
    writer.close()
    # Whole pages, so that a loop device shows all of it (bench/peers).
    os.truncate(path, -(-path.stat().st_size // PAGE_BYTES) * PAGE_BYTES)
    return path.stat().st_size
