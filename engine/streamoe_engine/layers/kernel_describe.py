"""A family's layers described for the C kernels: which matrix is where, and the few numbers around them.

Owns the reading of mlx-lm's module attributes (heads, widths, epsilons), so that defaults of configurations are
mlx-lm's. Refuses to know how layers are run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import mlx.nn as nn
import numpy as np

from .. import kernels
from .. import mlx_lm_import as lm
from ..arena import ResidentArena
from ..kernels import Expert, Matrix
from ..kernels.layer_calls import MAX_HEAD_DIM, AttentionLayer, GdnLayer, QkNorm, Routing
from ..kernels.part_calls import SharedExpert
from ..kv.formats import KvFormat
from ..manifest import Manifest
from ..skeleton import build_model, expert_modules, module_at, parent_of
from .kernel_math import kernel_reason
from .stored_matrix import stored_matrix

# Softmax routers named `gate`, blocks named `mlp`, RMS norms before and after the mix.
KERNEL_FAMILIES = ("qwen3_5_moe", "qwen3_next", "qwen3_moe", "olmoe")
_CACHE_DTYPES: dict[KvFormat, str] = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def unsupported_reason(manifest: Manifest, config: dict[str, Any]) -> str:
    """Why the C kernels cannot run this model's layers, or ""."""
    return next(filter(None, _reasons(manifest, config)), "")


def _reasons(manifest: Manifest, config: dict[str, Any]) -> Iterator[str]:
    """Each thing that could be in the way, cheapest first: "" where it is not."""
    yield kernels.unavailable_reason()
    yield "" if manifest.family in KERNEL_FAMILIES else f"{manifest.family} runs through MLX's modules"
    yield "" if len(manifest.experts) == manifest.num_layers else "some layers have no experts"
    fields = (field for part in manifest.resident.values() for field in part)
    is_affine = not any(field.name.endswith(".scales") and field.dtype == "U8" for field in fields)
    yield "" if is_affine else "resident weights are not packed in the affine way"
    yield from map(kernel_reason, manifest.experts)
    yield _model_reason(json.dumps(config, sort_keys=True), parent_of(manifest.embedding.module))


@lru_cache(maxsize=2)
def _model_reason(config_json: str, inner_path: str) -> str:
    """The same for what only mlx-lm's model tells. It is built once: a process plans several times."""
    model = build_model(json.loads(config_json))
    kinds = {type(module.activation) for module in expert_modules(model).values()}
    if kinds != {lm.switch_layers.SwiGLU}:
        return "its experts have another activation than SiLU"
    return next(filter(None, map(_layer_reason, module_at(model, inner_path).layers)), "")


def _layer_reason(layer: Any) -> str:
    if layer.input_layernorm.weight.size % 16:
        return "its width is no multiple of 16"
    if hasattr(layer, "linear_attn"):
        mix = layer.linear_attn
        fits = mix.conv_kernel_size == 4 and all(_is_head(dim) for dim in (mix.head_k_dim, mix.head_v_dim))
        return "" if fits else "its linear attention has unusual dimensions"
    rope = layer.self_attn.rope
    if type(rope) is not nn.RoPE or rope.traditional or rope.scale != 1.0:
        return "its rotary positions are scaled"
    return "" if _is_head(round(layer.self_attn.scale**-2)) else "its attention heads have an unusual width"


def _is_head(dim: int) -> bool:
    return dim % 16 == 0 and dim <= MAX_HEAD_DIM


class Describer:
    """Describes layers whose resident weights lie in an arena. inner: mlx-lm's model, without weights."""

    def __init__(self, arena: ResidentArena, inner: Any, inner_path: str, kv: KvFormat) -> None:
        self._arena, self._inner, self._inner_path, self._kv = arena, inner, inner_path, kv

    def layer(self, number: int, *, guesses_next: bool) -> GdnLayer | AttentionLayer:
        """Layer `number` up to its routing; guesses_next: with the next layer's router."""
        is_linear = hasattr(self._inner.layers[number], "linear_attn")
        return self._gdn(number, guesses_next) if is_linear else self._attention(number, guesses_next)

    def shared_expert(self, number: int) -> SharedExpert | None:
        """The layer's shared expert, where it has one."""
        if not hasattr(self._inner.layers[number].mlp, "shared_expert"):
            return None
        path = f"{self._path(number)}.mlp"
        parts = (self.matrix(f"{path}.shared_expert.{name}_proj") for name in ("gate", "up", "down"))
        return SharedExpert(Expert(*parts), self.matrix(f"{path}.shared_expert_gate"))

    def matrix(self, path: str) -> Matrix:
        """The matrix of the module at `path`, as the folder has it."""
        fields = self._arena.fields
        bias = self.vector(f"{path}.bias") if f"{path}.bias" in fields else None
        bias_address = 0 if bias is None else int(bias.__array_interface__["data"][0])
        own = {leaf: fields[f"{path}.{leaf}"] for leaf in ("weight", "scales", "biases") if f"{path}.{leaf}" in fields}
        return stored_matrix(
            own, lambda leaf: self._arena.address(f"{path}.{leaf}"), self._input_width(path), bias_address
        )

    def vector(self, name: str) -> np.ndarray:
        """A small tensor as float32, kept alive by whoever describes with it."""
        found = self._arena.vector(name)
        self._arena.keep(found)
        return found

    def _input_width(self, path: str) -> int:
        relative = path.removeprefix(f"{self._inner_path}.")
        if relative == path:  # the head, outside the inner model: it takes the layers' width
            return int(self._inner.layers[0].input_layernorm.weight.size)
        return int(module_at(self._inner, relative).weight.shape[-1])

    def _path(self, number: int) -> str:
        return f"{self._inner_path}.layers.{number}"

    def _routing(self, number: int, guesses_next: bool) -> Routing:
        here, after = self._path(number), self._path(number + 1)
        return Routing(
            self.vector(f"{here}.post_attention_layernorm.weight"),
            self.matrix(f"{here}.mlp.gate"),
            self.vector(f"{after}.post_attention_layernorm.weight") if guesses_next else None,
            self.matrix(f"{after}.mlp.gate") if guesses_next else None,
        )

    def _gdn(self, number: int, guesses_next: bool) -> GdnLayer:
        layer, path = self._inner.layers[number], f"{self._path(number)}.linear_attn"
        mix = layer.linear_attn
        is_interleaved = hasattr(mix, "in_proj_qkvz")
        return GdnLayer(
            input_norm=self.vector(f"{self._path(number)}.input_layernorm.weight"),
            routing=self._routing(number, guesses_next),
            norm_eps=layer.input_layernorm.eps,
            key_heads=mix.num_k_heads,
            value_heads=mix.num_v_heads,
            key_dim=mix.head_k_dim,
            value_dim=mix.head_v_dim,
            qkv=self.matrix(f"{path}.{'in_proj_qkvz' if is_interleaved else 'in_proj_qkv'}"),
            z=None if is_interleaved else self.matrix(f"{path}.in_proj_z"),
            b=self.matrix(f"{path}.{'in_proj_ba' if is_interleaved else 'in_proj_b'}"),
            a=None if is_interleaved else self.matrix(f"{path}.in_proj_a"),
            out=self.matrix(f"{path}.out_proj"),
            conv_weight=np.ascontiguousarray(self.vector(f"{path}.conv1d.weight")[:, :, 0].T),
            norm_weight=self.vector(f"{path}.norm.weight"),
            a_log=self.vector(f"{path}.A_log"),
            dt_bias=self.vector(f"{path}.dt_bias"),
            is_interleaved=is_interleaved,
        )

    def _attention(self, number: int, guesses_next: bool) -> AttentionLayer:
        layer, path = self._inner.layers[number], f"{self._path(number)}.self_attn"
        mix, dim = layer.self_attn, round(layer.self_attn.scale**-2)
        q, k = self.matrix(f"{path}.q_proj"), self.matrix(f"{path}.k_proj")
        has_norms = f"{path}.q_norm.weight" in self._arena.fields
        q_norm = self.vector(f"{path}.q_norm.weight") if has_norms else None
        qk_norm: QkNorm = "none" if q_norm is None else "head" if q_norm.size == dim else "width"
        heads = int(mix.o_proj.weight.shape[-1]) // dim
        return AttentionLayer(
            input_norm=self.vector(f"{self._path(number)}.input_layernorm.weight"),
            routing=self._routing(number, guesses_next),
            norm_eps=layer.input_layernorm.eps,
            heads=heads,
            kv_heads=k.rows // dim,
            dim=dim,
            rope_half=mix.rope.dims // 2,
            q=q,
            k=k,
            v=self.matrix(f"{path}.v_proj"),
            out=self.matrix(f"{path}.o_proj"),
            qk_norm=qk_norm,
            q_norm=q_norm,
            k_norm=self.vector(f"{path}.k_norm.weight") if has_norms else None,
            is_gated=q.rows == 2 * heads * dim,
            cache_dtype=_CACHE_DTYPES[self._kv],
        )
