"""Filling the modules of an mlx-lm model from a model folder.

Owns the way from stored tensors to module parameters. Refuses to know what the modules compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from ..errors import ModelFolderError
from ..manifest import Field
from ..quantization import stored_quantization
from ..skeleton import parent_of
from ..store import ModelStore

_MX_DTYPES = {"U8": mx.uint8, "U32": mx.uint32, "BF16": mx.uint16, "F16": mx.float16, "F32": mx.float32}


def fill_modules(
    model: nn.Module,
    store: ModelStore,
    parts: Mapping[str, Sequence[Field]],
    dtype: mx.Dtype,
    as_stored: Collection[str] = (),
) -> None:
    """Load tensors of resident parts into the model, whose modules of other bands have been replaced by empty ones.

    as_stored: paths of modules whose weights keep their stored type.
    Raises ModelFolderError where the folder lacks a weight that a module has, and the store's errors.
    """
    fields = {field.name: field for part in parts.values() for field in part}
    _quantize_like(model, fields)
    wanted = {name for name, _ in tree_flatten(model.parameters())}
    if missing := sorted(wanted - fields.keys()):
        raise ModelFolderError(
            f"{store.folder} lacks {len(missing)} weights of {store.manifest.family}, the first is {missing[0]}",
            "convert the checkpoint again",
        )
    for part, part_fields in parts.items():
        tensors = _in_compute_dtype(_loaded(store, part, part_fields), dtype, as_stored)
        model.load_weights([(name, array) for name, array in tensors.items() if name in wanted], strict=False)
        mx.eval(list(tensors.values()))


def _quantize_like(model: nn.Module, fields: dict[str, Field]) -> None:
    """Give a module its quantised form wherever the folder has scales for it, in the bits the tensors show."""

    def predicate(path: str, module: Any) -> bool | dict[str, Any]:
        scales = fields.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        return asdict(stored_quantization(module.weight.shape[-1], fields[f"{path}.weight"], scales))

    nn.quantize(model, class_predicate=predicate)


def _loaded(store: ModelStore, part: str, fields: Sequence[Field]) -> dict[str, mx.array]:
    """Tensors of a part in their stored types, read straight into MLX's own buffers."""
    arrays = {field.name: mx.zeros(field.shape, dtype=_MX_DTYPES[field.dtype]) for field in fields}
    mx.eval(list(arrays.values()))
    store.load_resident(part, {name: _bytes_of(array) for name, array in arrays.items()})
    return {
        field.name: arrays[field.name].view(mx.bfloat16) if field.dtype == "BF16" else arrays[field.name]
        for field in fields
    }


def _bytes_of(array: mx.array) -> np.ndarray:
    return np.array(array, copy=False).reshape(-1).view(np.uint8)


def _in_compute_dtype(tensors: dict[str, mx.array], dtype: mx.Dtype, as_stored: Collection[str]) -> dict[str, mx.array]:
    """Quantised matrices and their scales as stored; other real numbers in float32 where that is computed in."""
    if dtype != mx.float32:
        return tensors
    kept = {parent_of(name) for name in tensors if name.endswith(".scales")} | set(as_stored)
    narrow = (mx.bfloat16, mx.float16)
    return {
        name: array.astype(dtype) if array.dtype in narrow and parent_of(name) not in kept else array
        for name, array in tensors.items()
    }
