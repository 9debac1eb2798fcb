"""Tiny random layers of mlx-lm's own classes, and the same layers described for the C kernels.

The descriptions point into MLX's arrays, so both compute with the very same packed weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from streamoe_engine import mlx_lm_import as lm
from streamoe_engine import skeleton
from streamoe_engine.families import FAMILIES
from streamoe_engine.kernels import Expert, Matrix
from streamoe_engine.kernels.layer_calls import AttentionLayer, GdnLayer, Routing
from streamoe_engine.kernels.part_calls import SharedExpert
from tests.tiny_models import TINY_CONFIGS

GROUP = 32  # divides every width of the shapes under test


def tiny_model(family: str, **changes: Any) -> Any:
    """A float32 model whose linears are 4-bit, its routers 8-bit, and whose every small vector is random.

    changes: entries of the tiny configuration that shall be others.
    """
    mx.random.seed(3)
    config = copy.deepcopy(TINY_CONFIGS[family])
    config.get("text_config", config).update(changes)
    model = skeleton.build_model(config)

    def predicate(path: str, module: Any) -> Any:
        is_router = path.endswith((f".{FAMILIES[family].router}", "shared_expert_gate"))
        return hasattr(module, "to_quantized") and {"group_size": GROUP, "bits": 8 if is_router else 4}

    nn.quantize(model, class_predicate=predicate)
    for _, module in model.named_modules():
        if "weight" in module and module.weight.ndim == 1:
            module.weight = 1 + 0.3 * mx.random.normal(module.weight.shape)
        if "dt_bias" in module:
            module.dt_bias = mx.random.normal(module.dt_bias.shape)
            module.A_log = mx.random.uniform(-2, 2, module.A_log.shape)
    mx.eval(model.parameters())
    return model


@dataclass
class Outputs:
    """What a layer gives up to its experts, each (tokens, ...) float32."""

    after: np.ndarray
    expert_input: np.ndarray
    router_logits: np.ndarray
    guess_logits: np.ndarray | None
    shared: np.ndarray | None


@dataclass
class OracleLayer:
    """Layer `number` of a model, run by mlx-lm, with its description for C (kept alive by `held`)."""

    family: str
    model: Any
    number: int
    held: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inner = _inner(self.model)
        self.layer, self.next = self.inner.layers[self.number], self.inner.layers[self.number + 1]
        self.is_linear = hasattr(self.layer, "linear_attn")
        self.width = self.layer.input_layernorm.weight.size
        self.cache = lm.cache.ArraysCache(size=2) if self.is_linear else lm.cache.KVCache()

    @property
    def block(self) -> Any:
        """The layer's experts with their router."""
        return _block(self.layer)

    def run(self, hidden: np.ndarray) -> Outputs:
        """The next tokens (tokens, width) of the sequence in self.cache."""
        x = mx.array(hidden)[None]
        normed = self.layer.input_layernorm(x)
        mix = self.layer.linear_attn if self.is_linear else self.layer.self_attn
        mask = None if self.is_linear else lm.base.create_attention_mask(x, self.cache)
        after = x + mix(normed, mask, self.cache)
        routed = self.layer.post_attention_layernorm(after)
        guess = _block(self.next).gate(self.next.post_attention_layernorm(after))
        shared = None
        if hasattr(self.block, "shared_expert"):
            shared = mx.sigmoid(self.block.shared_expert_gate(routed)) * self.block.shared_expert(routed)
        parts = (after, routed, self.block.gate(routed), guess, shared)
        return Outputs(*(None if part is None else np.array(part[0]) for part in parts))

    def describe(self, cache_dtype: str = "F32") -> GdnLayer | AttentionLayer:
        return self._gdn() if self.is_linear else self._attention(cache_dtype)

    def shared(self) -> SharedExpert:
        shared = self.block.shared_expert
        expert = Expert(*(self._matrix(getattr(shared, f"{name}_proj")) for name in ("gate", "up", "down")))
        return SharedExpert(expert, self._matrix(self.block.shared_expert_gate))

    def _routing(self) -> Routing:
        return Routing(
            self._vector(self.layer.post_attention_layernorm.weight),
            self._matrix(self.block.gate),
            self._vector(self.next.post_attention_layernorm.weight),
            self._matrix(_block(self.next).gate),
        )

    def _gdn(self) -> GdnLayer:
        mix = self.layer.linear_attn
        is_interleaved = hasattr(mix, "in_proj_qkvz")
        names = (
            ("in_proj_qkvz", "", "in_proj_ba", "")
            if is_interleaved
            else (f"in_proj_{n}" for n in ("qkv", "z", "b", "a"))
        )
        qkv, z, b, a = (self._matrix(getattr(mix, name)) if name else None for name in names)
        assert qkv is not None and b is not None
        return GdnLayer(
            input_norm=self._vector(self.layer.input_layernorm.weight),
            routing=self._routing(),
            norm_eps=self.layer.input_layernorm.eps,
            key_heads=mix.num_k_heads,
            value_heads=mix.num_v_heads,
            key_dim=mix.head_k_dim,
            value_dim=mix.head_v_dim,
            qkv=qkv,
            z=z,
            b=b,
            a=a,
            out=self._matrix(mix.out_proj),
            conv_weight=self._vector(mix.conv1d.weight.squeeze(-1).T),
            norm_weight=self._vector(mix.norm.weight),
            a_log=self._vector(mix.A_log),
            dt_bias=self._vector(mix.dt_bias),
            is_interleaved=is_interleaved,
        )

    def _attention(self, cache_dtype: str) -> AttentionLayer:
        mix = self.layer.self_attn
        dim = round(mix.scale**-2)
        heads, kv_heads = self._matrix(mix.o_proj).cols // dim, self._matrix(mix.k_proj).rows // dim
        norms = [self._vector(mix[name].weight) if name in mix else None for name in ("q_norm", "k_norm")]
        qk_norm: Any = "none" if norms[0] is None else "head" if norms[0].size == dim else "width"
        return AttentionLayer(
            input_norm=self._vector(self.layer.input_layernorm.weight),
            routing=self._routing(),
            norm_eps=self.layer.input_layernorm.eps,
            heads=heads,
            kv_heads=kv_heads,
            dim=dim,
            rope_half=mix.rope.dims // 2,
            **{name: self._matrix(mix[f"{name}_proj"]) for name in ("q", "k", "v")},
            out=self._matrix(mix.o_proj),
            qk_norm=qk_norm,
            q_norm=norms[0],
            k_norm=norms[1],
            is_gated=mix.q_proj.scales.shape[0] == 2 * heads * dim,
            cache_dtype=cache_dtype,
        )

    def _matrix(self, linear: Any) -> Matrix:
        weight, scales, biases = (self._view(linear[name]) for name in ("weight", "scales", "biases"))
        rows, cols = scales.shape[0], scales.shape[1] * linear.group_size
        addresses = (array.__array_interface__["data"][0] for array in (weight, scales, biases))
        bias = self._view(linear.bias).__array_interface__["data"][0] if "bias" in linear else 0
        return Matrix(linear.bits, linear.group_size, rows, cols, "F32", *addresses, bias)

    def _view(self, array: mx.array) -> np.ndarray:
        mx.eval(array)
        self.held += [array, np.array(array, copy=False)]
        return self.held[-1]

    def _vector(self, array: mx.array) -> np.ndarray:
        self.held.append(np.ascontiguousarray(np.array(array, dtype=np.float32)))
        return self.held[-1]


def _inner(model: Any) -> Any:
    return model.language_model.model if hasattr(model, "language_model") else model.model


def _block(layer: Any) -> Any:
    return layer.block_sparse_moe if hasattr(layer, "block_sparse_moe") else layer.mlp
