"""Random checkpoints of tiny models, written as mlx-community and as Hugging Face publish them.

Weights are noise of a sane scale, drawn per tensor name and seed, so that two forms of one seed hold the same model.
The Hugging Face forms are made by undoing, tensor by tensor, what mlx-lm's `sanitize` does.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from streamoe_engine import skeleton
from tests.tiny_models import TINY_CONFIGS
from tests.tiny_tokenizer import write_tokenizer

Dtype = Literal["float32", "bfloat16", "float16"]
GROUP, BITS = 64, 4


def write_checkpoint(
    folder: Path,
    family: str,
    *,
    dtype: Dtype = "float32",
    quantized: bool = True,
    shards: int = 1,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    expert_quantization: dict[str, Any] | None = None,
    vision: bool = False,
) -> Path:
    """Write a random checkpoint in mlx-community's form, and return its folder.

    family: a key of TINY_CONFIGS, whose configuration `config` replaces. dtype: of floating-point tensors and
    of scales. quantized: 4-bit affine in groups of 64, routers at 8 bits as the model class wants.
    expert_quantization: other to_quantized arguments for expert matrices, such as {"mode": "mxfp4",
    "bits": 4, "group_size": 32}. shards > 1 deals tensors out in turn, so one expert's lie in several files.
    vision: adds three image-encoder tensors.
    """
    config = dict(config or TINY_CONFIGS[family])
    model = random_model(config, dtype=dtype, seed=seed)
    if quantized:
        config["quantization"] = quantize(model, expert_quantization)
        config["quantization_config"] = config["quantization"]
    tensors = dict(tree_flatten(model.parameters()))
    if vision:
        tensors |= vision_tensors("vision_tower", getattr(mx, dtype), seed)
    write_folder(folder, tensors, config, dtype=dtype, shards=shards)
    return folder


def write_raw_checkpoint(
    folder: Path,
    family: str,
    *,
    dtype: Dtype = "bfloat16",
    shards: int = 1,
    seed: int = 0,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a random checkpoint as Hugging Face publishes the family, and return its folder.

    The model equals write_checkpoint's of the same seed and dtype with quantized=False; gpt_oss has its
    experts in MXFP4. Tensors that mlx-lm drops (MTP, rotary frequencies) are there too.
    """
    config = dict(config or TINY_CONFIGS[family])
    tensors = dict(tree_flatten(random_model(config, dtype=dtype, seed=seed).parameters()))
    write_folder(folder, raw_form(tensors, config, seed), config, dtype=dtype, shards=shards)
    return folder


def raw_form(tensors: dict[str, mx.array], config: dict[str, Any], seed: int = 0) -> dict[str, mx.array]:
    """The tensors of a floating-point model as Hugging Face publishes the family; lazy ones stay lazy."""
    return _RAW_FORMS[config["model_type"]](tensors, config, seed)


def random_model(config: dict[str, Any], *, dtype: Dtype, seed: int) -> nn.Module:
    """mlx-lm's model of a configuration with seeded random weights, not quantised."""
    model = skeleton.build_model(config)
    may_cast = getattr(model, "cast_predicate", lambda _: True)
    weights = [
        (name, _random_tensor(name, value.shape, seed).astype(getattr(mx, dtype) if may_cast(name) else mx.float32))
        for name, value in tree_flatten(model.parameters())
    ]
    model.update(tree_unflatten(weights))
    return model


def quantize(model: nn.Module, expert_quantization: dict[str, Any] | None = None) -> dict[str, Any]:
    """Quantise in place as mlx-lm's conversion decides; returns what it writes into the configuration."""
    predicate = getattr(model, "quant_predicate", None)
    experts = tuple(skeleton.expert_modules(model))
    spec: dict[str, Any] = {"group_size": GROUP, "bits": BITS, "mode": "affine"}

    def decide(path: str, module: nn.Module) -> Any:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % GROUP:
            return False
        decision = predicate(path, module) if predicate else True
        if expert_quantization and path.startswith(experts):
            decision = dict(expert_quantization)
        if isinstance(decision, dict):
            spec[path] = decision
        return decision

    nn.quantize(model, GROUP, BITS, class_predicate=decide)
    return spec


def vision_tensors(prefix: str, dtype: mx.Dtype, seed: int) -> dict[str, mx.array]:
    """A few tensors named as an image encoder's."""
    names = {
        "patch_embed.proj.weight": (32, 2, 4, 4, 3),
        "blocks.0.attn.qkv.weight": (96, 32),
        "pos_embed.weight": (9, 32),
    }
    return {f"{prefix}.{n}": _random_tensor(f"{prefix}.{n}", s, seed).astype(dtype) for n, s in names.items()}


def write_folder(
    folder: Path, tensors: dict[str, mx.array], config: dict[str, Any], *, dtype: Dtype, shards: int
) -> None:
    """Write safetensors (with an index where there are several), config.json, tokenizer and chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    names = names if shards > 1 else ["model.safetensors"]
    place = {key: names[i % shards] for i, key in enumerate(tensors)}
    for name in names:
        chosen = {key: value for key, value in tensors.items() if place[key] == name}
        mx.save_safetensors(str(folder / name), chosen, metadata={"format": "mlx"})
    if shards > 1:
        index = {"metadata": {"total_size": sum(v.nbytes for v in tensors.values())}, "weight_map": place}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    text = config.get("text_config", config)
    end = write_tokenizer(folder, text["vocab_size"])
    config = {**config, "dtype": dtype, "eos_token_id": end}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end], "temperature": 0.7}))


def _random_tensor(name: str, shape: tuple[int, ...], seed: int) -> mx.array:
    noise = mx.random.normal(shape, key=mx.random.key(zlib.crc32(name.encode()) + seed))
    leaf = name.rpartition(".")[2]
    if leaf == "A_log":
        return mx.log(1.0 + 3.0 * mx.abs(noise))
    if "norm" in name and len(shape) == 1:
        # Kept within [0.5, 2), so that the 1 which Hugging Face's form leaves out comes off and on exactly.
        return mx.clip(1.0 + 0.1 * noise, 0.55, 1.9)
    if len(shape) == 1 or leaf == "bias":
        return (1.0 if leaf == "sinks" else 0.1) * noise
    if "embed_tokens" in name:
        return noise
    is_router = name.endswith(("mlp.gate.weight", "router.weight", "block_sparse_moe.gate.weight"))
    return noise * ((2.0 if is_router else 1.0) / math.sqrt(shape[-2] if "conv1d" in name else shape[-1]))


# ---- Hugging Face's forms

Tensors = dict[str, mx.array]
_QWEN_NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight")
_QWEN_NORMS += (".q_norm.weight", ".k_norm.weight")


def split_experts(tensors: Tensors, stack: str = ".switch_mlp.", single: str = ".experts.", **names: str) -> Tensors:
    """Stacked expert tensors taken apart, one for each expert; names: other names of projections."""
    raw: Tensors = {}
    for key, value in tensors.items():
        if stack not in key:
            raw[key] = value
            continue
        prefix, rest = key.split(stack)
        projection, leaf = rest.split(".")
        for expert in range(value.shape[0]):
            raw[f"{prefix}{single}{expert}.{names.get(projection, projection)}.{leaf}"] = value[expert]
    return raw


def _unshift_norms(tensors: Tensors) -> Tensors:
    raw = dict(tensors)
    for key, value in tensors.items():
        if key.endswith(_QWEN_NORMS):
            raw[key] = value - 1.0
        elif "conv1d.weight" in key:
            raw[key] = value.moveaxis(2, 1)
    return raw


def _raw_qwen3_5_moe(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    raw: Tensors = {}
    for key, value in _unshift_norms(tensors).items():
        name = key.replace("language_model.model.", "model.language_model.").replace(
            "language_model.lm_head", "lm_head"
        )
        if name.endswith("switch_mlp.gate_proj.weight"):
            up = tensors[key.replace("gate_proj", "up_proj")]
            raw[name.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")] = mx.concatenate([value, up], 1)
        elif name.endswith("switch_mlp.down_proj.weight"):
            raw[name.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = value
        elif not name.endswith("switch_mlp.up_proj.weight"):
            raw[name] = value
    dtype = raw["model.language_model.embed_tokens.weight"].dtype
    raw["mtp.fc.weight"] = mx.zeros((64, 128), dtype=dtype)
    return raw | vision_tensors("model.visual", dtype, seed)


def _raw_qwen3_next(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    raw = split_experts(_unshift_norms(tensors))
    raw["mtp.norm.weight"] = mx.zeros((64,), dtype=raw["model.norm.weight"].dtype)
    return raw


def _raw_per_expert(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    return split_experts(tensors)


def _raw_mixtral(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    return split_experts(tensors, gate_proj="w1", up_proj="w3", down_proj="w2")


def _raw_glm4_moe(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    raw = split_experts(tensors)
    raw[f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"] = mx.zeros((64, 128))
    return raw


def _raw_deepseek_v3(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    raw: Tensors = {}
    for key, value in split_experts(tensors).items():
        if key.endswith("embed_q.weight"):
            values = tensors[key.replace("embed_q", "unembed_out")]
            joined = mx.concatenate([value.swapaxes(-1, -2), values], axis=1)
            raw[key.replace("embed_q", "kv_b_proj")] = joined.reshape(-1, joined.shape[-1])
        elif not key.endswith("unembed_out.weight"):
            raw[key] = value
    raw["model.layers.61.eh_proj.weight"] = mx.zeros((64, 128))
    raw["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.ones((16,))
    return raw


def _raw_gpt_oss(tensors: Tensors, config: dict[str, Any], seed: int) -> Tensors:
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    raw = {key: value for key, value in tensors.items() if ".experts." not in key}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts."
        for name, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
            weights = _interleave([tensors[f"{prefix}{part}.weight"] for part in parts])
            packed, scales = mx.quantize(weights, 32, 4, mode="mxfp4")
            # (experts, rows, inputs / 32, 16) uint8: sixteen bytes hold the 32 codes of one scale
            raw[f"{prefix}{name}_blocks"] = packed.view(mx.uint8).reshape(*scales.shape, 16)
            raw[f"{prefix}{name}_scales"] = scales
            raw[f"{prefix}{name}_bias"] = _interleave([tensors[f"{prefix}{part}.bias"] for part in parts])
    return raw


def _interleave(parts: list[mx.array]) -> mx.array:
    # Rows of gate and up alternate in axis 1.
    return mx.stack(parts, axis=2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])


_RAW_FORMS = {
    "qwen3_5_moe": _raw_qwen3_5_moe,
    "qwen3_next": _raw_qwen3_next,
    "qwen3_moe": _raw_per_expert,
    "olmoe": _raw_per_expert,
    "mixtral": _raw_mixtral,
    "deepseek_v3": _raw_deepseek_v3,
    "glm4_moe": _raw_glm4_moe,
    "gpt_oss": _raw_gpt_oss,
    "qwen2_moe": _raw_per_expert,
    "minimax": _raw_mixtral,
}
RAW_FAMILIES = tuple(family for family in _RAW_FORMS if family in TINY_CONFIGS)
