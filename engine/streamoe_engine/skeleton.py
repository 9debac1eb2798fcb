"""An mlx-lm model without weights, and what can be learned of an architecture from it.

Owns: building the model class a configuration names, finding the parts the engine treats apart (embedding,
layers, final norm, head, expert modules), and probing what experts and state each layer has. MLX is lazy, so
a forward pass that is never evaluated shows every shape and costs no memory.
Refuses to know where weights come from and how experts are streamed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from . import mlx_lm_import as lm
from .errors import CheckpointMismatch, ModelNotSupported
from .manifest import LayerState

# model_type in a configuration -> mlx-lm's module, where they differ (mlx_lm.utils keeps such a table, but
# importing it pulls in transformers).
_MODEL_TYPE_MODULES = {
    "kimi_k2": "deepseek_v3",
    "joyai_llm_flash": "deepseek_v3",
    "minimax_m2": "minimax",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
_LAYER_NUMBER = re.compile(r"\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class ExpertModule:
    """One expert module of an architecture: its layer, path, number of experts, experts a token picks, and
    its input, hidden and output widths."""

    layer: int
    path: str
    num_experts: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a configuration alone tells of a model. Paths name modules as mlx-lm does.

    head_path is None where the embedding is the head (tied).
    """

    family: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    num_heads: int
    max_context: int
    inner_path: str
    embedding_path: str
    head_path: str | None
    experts: tuple[ExpertModule, ...]
    states: tuple[LayerState, ...]


class _ExpertProbe(nn.Module):
    """Stands in for an expert module: notes how it is called, answers zeros of the right shape."""

    def __init__(self, path: str, num_experts: int, found: dict[str, ExpertModule]) -> None:
        super().__init__()
        self._path, self._num_experts, self._found = path, num_experts, found

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        match = _LAYER_NUMBER.search(f".{self._path}")
        assert match is not None, self._path
        top_k = indices.shape[-1]
        self._found[self._path] = ExpertModule(int(match[1]), self._path, self._num_experts, top_k)
        return mx.zeros((*indices.shape, x.shape[-1]), dtype=x.dtype)


def model_module(config: dict[str, Any]) -> Any:
    """mlx-lm's module for a configuration. Raises ModelNotSupported for an architecture it has not."""
    model_type = config.get("model_type", "")
    try:
        found = lm.submodule(f"models.{_MODEL_TYPE_MODULES.get(model_type, model_type)}")
        if not hasattr(found, "Model"):
            raise ImportError(f"{found.__name__} is a helper, not a model")
        return found
    except ImportError as error:
        raise ModelNotSupported(
            f"model_type '{model_type}' has no model class in mlx-lm",
            "use a checkpoint of a Mixture-of-Experts family that mlx-lm runs, such as qwen3_5_moe, qwen3_moe, "
            "olmoe, mixtral, deepseek_v3, glm4_moe or gpt_oss",
        ) from error


def build_model(config: dict[str, Any]) -> nn.Module:
    """The model of a configuration, all weights lazy and unevaluated.

    Raises ModelNotSupported, or CheckpointMismatch when the class refuses the configuration.
    """
    module = model_module(config)
    try:
        return module.Model(module.ModelArgs.from_dict(_with_rope_theta(config)))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointMismatch(
            f"config.json is not a whole configuration of {config.get('model_type')}: {error!r}",
            "download the checkpoint's config.json again",
        ) from error
    finally:
        # Every lazy weight drew from the global key: unevaluated, that keeps the chain of all draws, 2 MiB a model.
        state: Any = mx.random.state
        mx.eval(state[0])


def _with_rope_theta(config: dict[str, Any]) -> dict[str, Any]:
    # transformers 5 writes rope_theta into rope_parameters only; several classes of mlx-lm read it beside them,
    # and some fall back to 10000 without a word.
    theta = (config.get("rope_parameters") or {}).get("rope_theta")
    return config if theta is None or "rope_theta" in config else {**config, "rope_theta": theta}


def parent_of(path: str) -> str:
    """Path of the module that holds `path`: "model.layers.3.mlp" for "model.layers.3.mlp.gate"."""
    return path.rpartition(".")[0]


def module_at(model: nn.Module, path: str) -> Any:
    """The module at a dotted path such as "model.layers.3.mlp"; the model itself for ""."""
    found: Any = model
    for name in path.split(".") if path else ():
        found = found[int(name)] if isinstance(found, list) else getattr(found, name)
    return found


def replace_module(model: nn.Module, path: str, module: Any) -> None:
    """Put `module` at `path`."""
    parent, name = module_at(model, parent_of(path)), path.rpartition(".")[2]
    if isinstance(parent, list):
        parent[int(name)] = module
    else:
        setattr(parent, name, module)


def expert_modules(model: nn.Module) -> dict[str, Any]:
    """mlx-lm's expert modules (SwitchGLU or SwitchMLP) by path, in layer order."""
    kinds = (lm.switch_layers.SwitchGLU, lm.switch_layers.SwitchMLP)
    found = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    return dict(sorted(found.items(), key=lambda item: layer_of(item[0])))


def projections(module: Any) -> list[tuple[str, Any]]:
    """The matrices of an expert module, by name and in record order: gate, up, down, or fc1, fc2."""
    names = ("gate_proj", "up_proj", "down_proj") if hasattr(module, "gate_proj") else ("fc1", "fc2")
    return [(name, getattr(module, name)) for name in names]


def layer_of(path: str) -> int:
    """The layer number in a module path, or -1 for a path outside the layers."""
    match = _LAYER_NUMBER.search(f".{path}.")
    return int(match[1]) if match else -1


def _embedding_path(model: nn.Module, family: str) -> str:
    found = [path for path, module in model.named_modules() if isinstance(module, nn.Embedding)]
    if len(found) != 1:
        raise ModelNotSupported(
            f"{family} has {len(found)} embedding tables ({', '.join(found) or 'none'}), the engine handles one",
            "use a text model with a single token embedding",
        )
    return found[0]


def head_path(model: nn.Module, embedding_path: str) -> str | None:
    """Where the output head is: lm_head beside the inner model or at the top; None where the embedding is the head."""
    for holder in (parent_of(parent_of(embedding_path)), ""):
        if hasattr(module_at(model, holder), "lm_head"):
            return f"{holder}.lm_head".lstrip(".")
    return None


def _array_dims(array: mx.array) -> int:
    # (1, heads, tokens, dims) -> elements a token
    return int(array.shape[1] * array.shape[3])


def _state_of(cache: Any, family: str) -> LayerState:
    if isinstance(cache, lm.cache.ArraysCache):
        return LayerState("recurrent", arrays=tuple(tuple(array.shape[1:]) for array in cache.cache))
    if isinstance(cache, lm.cache.RotatingKVCache):
        return LayerState("window", _array_dims(cache.keys), _array_dims(cache.values), cache.max_size)
    if isinstance(cache, lm.cache.KVCache):
        return LayerState("kv", _array_dims(cache.keys), _array_dims(cache.values))
    raise ModelNotSupported(
        f"{family} keeps its state in a {type(cache).__name__}, which the planner cannot size",
        "use a family whose layers keep keys and values or a recurrent state",
    )


def probe(config: dict[str, Any]) -> Architecture:
    """What the configuration alone tells: expert layers, state of each layer, and where the parts are.

    Evaluates nothing. Raises ModelNotSupported (no experts, several embeddings, unknown state) and
    CheckpointMismatch.
    """
    model, family = build_model(config), str(config["model_type"])
    embedding_path = _embedding_path(model, family)
    inner_path = parent_of(embedding_path)
    found: dict[str, ExpertModule] = {}
    for path, module in expert_modules(model).items():
        replace_module(model, path, _ExpertProbe(path, projections(module)[0][1].num_experts, found))
    caches = lm.cache.make_prompt_cache(model)
    try:
        model(mx.zeros((1, 2), dtype=mx.int32), cache=caches)
    except (TypeError, ValueError, IndexError) as error:
        raise CheckpointMismatch(
            f"config.json of {family} gives shapes that do not fit together: {error}",
            "download the checkpoint's config.json again",
        ) from error
    if not found:
        raise ModelNotSupported(f"{family} with this configuration has no experts", "use a Mixture-of-Experts model")
    embedding, text = module_at(model, embedding_path), config.get("text_config", config)
    return Architecture(
        family=family,
        num_layers=len(caches),
        hidden_size=int(embedding.weight.shape[1]),
        vocab_size=int(embedding.weight.shape[0]),
        num_heads=int(text.get("num_attention_heads") or 1),
        max_context=int(text.get("max_position_embeddings") or 0),
        inner_path=inner_path,
        embedding_path=embedding_path,
        head_path=head_path(model, embedding_path),
        experts=tuple(found[path] for path in sorted(found, key=layer_of)),
        states=tuple(_state_of(cache, family) for cache in caches),
    )
