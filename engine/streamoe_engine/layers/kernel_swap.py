"""Which modules of an mlx-lm model the C kernels can take over, and the taking over.

Owns the choice, by module and by stored format, so that planning and building agree. Refuses to know how either
computes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .. import kernels
from .. import mlx_lm_import as lm
from ..kernels import Kernels
from ..manifest import Field, Manifest
from ..quantization import stored_quantization
from ..skeleton import build_model, replace_module
from .kernel_linear import KernelLinear, KernelMultiLinear

_MLA = lm.submodule("models.mla")
_LINEARS = (nn.Linear, nn.QuantizedLinear)
_MULTI_LINEARS = (_MLA.MultiLinear, _MLA.QuantizedMultiLinear)
_DENSE_GROUP = 32  # the kernels' step through a row of plain numbers


def swap_reason(manifest: Manifest, config: dict[str, Any]) -> str:
    """Why no matrix of this model can be multiplied by the kernels, or ""."""
    if reason := kernels.unavailable_reason():
        return reason
    fields = tuple(field for part in manifest.resident.values() for field in part)
    return _model_reason(json.dumps(config, sort_keys=True), fields, manifest.family)


@lru_cache(maxsize=1)  # it keeps the fields alive
def _model_reason(config_json: str, fields: tuple[Field, ...], family: str) -> str:
    """The same, kernels apart. The model is built once: a process plans several times."""
    model = build_model(json.loads(config_json))
    paths = swappable(model, {field.name: field for field in fields})
    if not paths:
        return "none of its matrices is packed in the affine way"
    return "" if _runs_without_weights(model, paths) else f"{family} reads its matrices' weights itself"


def swappable(model: nn.Module, fields: Mapping[str, Field]) -> list[str]:
    """Paths of the modules whose matrices the kernels can multiply as they are stored. model has no weights yet."""
    kinds = (*_LINEARS, *_MULTI_LINEARS)
    return [path for path, module in model.named_modules() if type(module) in kinds and fits(path, module, fields)]


def swap(model: nn.Module, paths: list[str], native: Kernels) -> None:
    """Put the kernels' modules where these loaded ones are."""
    modules = dict(model.named_modules())
    for path in paths:
        module = modules[path]
        made = KernelMultiLinear if isinstance(module, _MULTI_LINEARS) else KernelLinear
        replace_module(model, path, made(native, module))


def fits(path: str, module: Any, fields: Mapping[str, Field]) -> bool:
    """Whether the kernels can multiply by the matrix that fields have at `path`, the place of `module`."""
    return f"{path}.weight" in fields and format_fits(module.weight.shape[-1], path, fields)


def format_fits(cols: int, path: str, fields: Mapping[str, Field]) -> bool:
    """Whether the kernels know how the matrix of `cols` inputs at `path` is stored."""
    weight, scales = fields[f"{path}.weight"], fields.get(f"{path}.scales")
    if scales is None:
        return bool(cols % _DENSE_GROUP == 0)
    return scales.dtype != "U8" and stored_quantization(cols, weight, scales).mode == "affine"


class _Shapes(nn.Module):
    """Stands in for a matrix's module: zeros of the right shape, and no weight to look at."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._outputs, self._heads = module.weight.shape[-2], module.weight.shape[:-2]
        self._inputs = module.weight.shape[-1]

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array:
        width = self._outputs if transpose else self._inputs
        shape = (x.shape[0], *self._heads, *x.shape[2:-1]) if self._heads else x.shape[:-1]
        return mx.zeros((*shape, width), dtype=x.dtype)


def _runs_without_weights(model: nn.Module, paths: list[str]) -> bool:
    """Whether the model's own code only calls these modules. MLX is lazy: nothing is computed."""
    modules = dict(model.named_modules())
    for path in paths:
        replace_module(model, path, _Shapes(modules[path]))
    try:
        for tokens in (2, 1):
            model(mx.zeros((1, tokens), dtype=mx.int32), cache=lm.cache.make_prompt_cache(model))
    except (AttributeError, KeyError):  # it looked for a weight
        return False
    return True
