"""The tensors of a synthetic model as mlx-community names and quantises them, and their config.json.

Owns names, shapes and bit widths: affine 4-bit in groups of 64, routers and shared-expert gates at 8 bits, norms
and the like in bfloat16. Every tensor is a recipe: nothing is drawn before its pieces are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import noise
from .shapes import GROUP, Shape
from .tokenizer import END_OF_TEXT_ID, END_OF_TURN_ID

ROOT = "language_model."
_DTYPE_BYTES = {"U32": 4, "BF16": 2, "F32": 4}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a safetensors file: name, dtype name, shape, and the recipe of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[NDArray[Any]]]

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * _DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a synthetic model is made from. skew and router_std as in noise.router_rows."""

    shape: Shape
    seed: int = 0
    skew: float = 0.38
    router_std: float = 1.0


def _matrix(recipe: Recipe, name: str, *shape: int, std: float | None = None) -> Iterator[Tensor]:
    """A 4-bit matrix, or a stack of them; std defaults to one over the root of the row length."""
    *lead, columns = shape
    seed, spread = recipe.seed, std or 1 / sqrt(columns)
    groups = (*lead, columns // GROUP)
    count = prod(groups)
    yield Tensor(
        f"{name}.weight", "U32", (*lead, columns // 8), lambda: noise.code_pieces(seed, name, prod(shape) // 2)
    )
    yield Tensor(f"{name}.scales", "BF16", groups, lambda: noise.scale_pieces(seed, name, count, spread))
    yield Tensor(f"{name}.biases", "BF16", groups, lambda: noise.bias_pieces(seed, name, count, spread))


def _gate(recipe: Recipe, name: str, noise_name: str, rows: int, skew: float, std: float) -> Iterator[Tensor]:
    """An 8-bit router of `rows` rows."""
    columns = recipe.shape.hidden

    def part(index: int) -> list[NDArray[Any]]:
        values = noise.router_rows(recipe.seed, noise_name, rows, columns, skew, std)
        return [noise.quantize_8bit(values)[index]]

    yield Tensor(f"{name}.weight", "U32", (rows, columns // 4), lambda: part(0))
    yield Tensor(f"{name}.scales", "BF16", (rows, columns // GROUP), lambda: part(1))
    yield Tensor(f"{name}.biases", "BF16", (rows, columns // GROUP), lambda: part(2))


def _ones(name: str, count: int) -> Tensor:
    return Tensor(name, "BF16", (count,), lambda: [noise.bf16_bits(np.ones(count, np.float32))])


def _full_attention(recipe: Recipe, path: str) -> Iterator[Tensor]:
    shape = recipe.shape
    yield from _matrix(recipe, path + "q_proj", 2 * shape.heads * shape.head_dim, shape.hidden)
    yield from _matrix(recipe, path + "k_proj", shape.kv_heads * shape.head_dim, shape.hidden)
    yield from _matrix(recipe, path + "v_proj", shape.kv_heads * shape.head_dim, shape.hidden)
    yield from _matrix(recipe, path + "o_proj", shape.hidden, shape.heads * shape.head_dim)
    yield _ones(path + "q_norm.weight", shape.head_dim)
    yield _ones(path + "k_norm.weight", shape.head_dim)


def _linear_attention(recipe: Recipe, path: str) -> Iterator[Tensor]:
    shape, seed = recipe.shape, recipe.seed
    heads, channels, width = shape.linear_value_heads, shape.conv_dim, shape.conv_kernel

    def vectors() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return noise.delta_vectors(noise.generator_for(seed, path + "A_log"), heads)

    def kernels() -> NDArray[np.float32]:
        return noise.conv_kernels(noise.generator_for(seed, path + "conv1d"), channels, width)

    yield from _matrix(recipe, path + "in_proj_qkv", channels, shape.hidden)
    yield from _matrix(recipe, path + "in_proj_z", shape.linear_value_dim, shape.hidden)
    yield from _matrix(recipe, path + "in_proj_b", heads, shape.hidden)
    yield from _matrix(recipe, path + "in_proj_a", heads, shape.hidden)
    yield from _matrix(recipe, path + "out_proj", shape.hidden, shape.linear_value_dim)
    yield Tensor(path + "conv1d.weight", "BF16", (channels, width, 1), lambda: [noise.bf16_bits(kernels())])
    yield Tensor(path + "A_log", "F32", (heads,), lambda: [vectors()[0]])
    yield Tensor(path + "dt_bias", "BF16", (heads,), lambda: [noise.bf16_bits(vectors()[1])])
    yield _ones(path + "norm.weight", shape.linear_head_dim)


def _experts(recipe: Recipe, path: str) -> Iterator[Tensor]:
    shape = recipe.shape
    yield from _gate(recipe, path + "gate", path + "gate", shape.experts, recipe.skew, recipe.router_std)
    yield from _gate(recipe, path + "shared_expert_gate", path + "sgate", 1, 0.0, 1.0)
    for holder, lead, width in (
        ("shared_expert.", (), shape.shared_dim),
        ("switch_mlp.", (shape.experts,), shape.expert_dim),
    ):
        yield from _matrix(recipe, path + holder + "gate_proj", *lead, width, shape.hidden)
        yield from _matrix(recipe, path + holder + "up_proj", *lead, width, shape.hidden)
        yield from _matrix(recipe, path + holder + "down_proj", *lead, shape.hidden, width)


def tensors(recipe: Recipe) -> Iterator[Tensor]:
    """All tensors of the model in file order."""
    shape = recipe.shape
    yield from _matrix(recipe, ROOT + "model.embed_tokens", shape.vocab, shape.hidden, std=1.0)
    for layer in range(shape.layers):
        path = f"{ROOT}model.layers.{layer}."
        yield _ones(path + "input_layernorm.weight", shape.hidden)
        yield _ones(path + "post_attention_layernorm.weight", shape.hidden)
        if shape.is_full(layer):
            yield from _full_attention(recipe, path + "self_attn.")
        else:
            yield from _linear_attention(recipe, path + "linear_attn.")
        yield from _experts(recipe, path + "mlp.")
    yield _ones(ROOT + "model.norm.weight", shape.hidden)
    yield from _matrix(recipe, ROOT + "lm_head", shape.vocab, shape.hidden)


def _text_config(shape: Shape) -> dict[str, Any]:
    kinds = ["full_attention" if shape.is_full(i) else "linear_attention" for i in range(shape.layers)]
    return {
        "model_type": "qwen3_5_moe_text",
        "dtype": "bfloat16",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "layer_types": kinds,
        "full_attention_interval": shape.full_interval,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attn_output_gate": True,
        "attention_bias": False,
        "linear_num_value_heads": shape.linear_value_heads,
        "linear_num_key_heads": shape.linear_key_heads,
        "linear_key_head_dim": shape.linear_head_dim,
        "linear_value_head_dim": shape.linear_head_dim,
        "linear_conv_kernel_dim": shape.conv_kernel,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.top_k,
        "moe_intermediate_size": shape.expert_dim,
        "shared_expert_intermediate_size": shape.shared_dim,
        "norm_topk_prob": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.ctx_tokens,
        "tie_word_embeddings": False,
        "eos_token_id": END_OF_TURN_ID,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": shape.rope_sections,
        },
    }


def config(shape: Shape) -> dict[str, Any]:
    """config.json as mlx-community's conversions of this family have it."""
    quantization: dict[str, Any] = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    for layer in range(shape.layers):
        for gate in ("gate", "shared_expert_gate"):
            quantization[f"{ROOT}model.layers.{layer}.mlp.{gate}"] = {"group_size": GROUP, "bits": 8}
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": _text_config(shape),
        "tie_word_embeddings": False,
        "eos_token_id": [END_OF_TURN_ID, END_OF_TEXT_ID],
        "quantization": quantization,
        "quantization_config": quantization,
    }
