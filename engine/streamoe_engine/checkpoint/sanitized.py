"""A checkpoint under mlx-lm's names: the model class's own `sanitize`, run on tensors that hold nothing.

Owns the trick: every source tensor is a lazy array that is never evaluated. A result that is the very same array is a
plain rename, and its bytes come from the file. A result that is another array was derived; it is computed again,
a few layers at a time, with the real data of just those source tensors that have no plain rename.
Refuses to know families, and how experts are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import mlx.core as mx

from ..errors import CheckpointIncomplete, CheckpointMismatch, ModelNotSupported
from ..freed_memory import give_freed_memory_back
from ..sizes import MIB, format_size
from ..skeleton import layer_of
from .dtypes import FLOATS, ITEM_BYTES, MLX_DTYPES, SAFETENSORS_DTYPES, bytes_of_array
from .segments import Derived
from .source import Source, SourceTensor
from .source_files import SourceReader

Weights = dict[str, mx.array]

# Source tensors read at once to derive others from them: several layers', or one that needs more (deepseek_v3: 33 MB).
_BATCH_BYTES = 8 * MIB
_MAX_GROUP_BYTES = 64 * MIB
# Above this, it is asked whether anything comes of a tensor that sanitize used up (of a tied lm_head: nothing).
_SMALL_BYTES = 4 * MIB
_PER_EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True, slots=True)
class SanitizedTensor:
    """A tensor under its mlx-lm name; source is the one it is a rename of, or None where it is derived."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: SourceTensor | None


class SanitizedView:
    """All tensors of a checkpoint under mlx-lm's names."""

    def __init__(self, model: Any, source: Source, expert_paths: Iterable[str], reader: SourceReader) -> None:
        """expert_paths: modules whose derived tensors are not computed here.

        Raises CheckpointIncomplete and CheckpointMismatch.
        """
        self._sanitize: Callable[[Weights], Weights] = getattr(model, "sanitize", lambda weights: weights)
        self._source, self._reader = source, reader
        self._expert_prefixes = tuple(f"{path}." for path in expert_paths)
        placeholders = _placeholders(source.tensors.values())
        found = self._sanitized(dict(placeholders))  # sanitize takes names out of the dict it is given
        # Per-expert tensors share placeholders, so these identify nothing.
        sources = {id(array): name for name, array in placeholders.items() if not _PER_EXPERT.search(name)}
        self.tensors = {name: self._described(name, array, sources.get(id(array))) for name, array in found.items()}
        self._outputs = frozenset(self.tensors)
        self._used_up = self._without_rename()
        self._groups = sorted({layer_of(name) for name in self._derived_names()})
        self._batch: Weights = {}
        self._yields: dict[str, bool] = {}

    def derived(self, tensor: SanitizedTensor) -> Derived:
        """How to compute a tensor that has no source of its own."""
        assert tensor.source is None, tensor
        return Derived(partial(self._derive, tensor.name), prod(tensor.shape) * ITEM_BYTES[tensor.dtype])

    def _described(self, name: str, array: mx.array, source: str | None) -> SanitizedTensor:
        if source is None:
            return SanitizedTensor(name, SAFETENSORS_DTYPES[array.dtype], tuple(array.shape), None)
        tensor = self._source.tensors[source]
        return SanitizedTensor(name, tensor.dtype, tensor.shape, tensor)

    def _without_rename(self) -> list[SourceTensor]:
        renamed = {tensor.source.name for tensor in self.tensors.values() if tensor.source is not None}
        return [
            tensor
            for tensor in self._source.tensors.values()
            if tensor.name not in renamed and ".experts." not in tensor.name and not is_vision(tensor.name)
        ]

    def _derived_names(self) -> list[str]:
        return [
            name
            for name, tensor in self.tensors.items()
            if tensor.source is None and not name.startswith(self._expert_prefixes)
        ]

    def _derive(self, name: str) -> mx.array:
        if name not in self._batch:
            self._batch = {}  # given back before the next batch is read
            self._batch = self._compute_batch(layer_of(name))
        return self._batch[name]

    def _compute_batch(self, first: int) -> Weights:
        """Real values of the derived tensors of layer `first`, and of as many layers after it as fit beside it."""
        wanted = self._unevaluated(*self._batch_from(first))
        give_freed_memory_back()
        mx.eval(list(wanted.values()))
        for name, array in wanted.items():
            if mx.issubdtype(array.dtype, mx.floating) and not mx.all(mx.isfinite(array)).item():
                raise ModelNotSupported(
                    f"{name} would be computed from tensors that are not read for it, or they hold NaN or infinity",
                    "convert the checkpoint with `python -m mlx_lm convert` first, then convert its result",
                )
        return wanted

    def _unevaluated(self, groups: set[int], needed: list[SourceTensor]) -> Weights:
        # In a function of its own: tens of thousands of lazy experts are dropped before anything is computed.
        blank = _placeholders(self._source.tensors.values(), fill=float("nan"))
        found = self._sanitized(blank | {tensor.name: self._value(tensor) for tensor in needed})
        return {name: mx.contiguous(found[name]) for name in self._derived_names() if layer_of(name) in groups}

    def _batch_from(self, first: int) -> tuple[set[int], list[SourceTensor]]:
        groups: set[int] = set()
        needed: list[SourceTensor] = []
        for group in self._groups[self._groups.index(first) :]:
            more = [tensor for tensor in self._used_up if layer_of(tensor.name) == group and self._is_needed(tensor)]
            total = sum(tensor.num_bytes for tensor in (*needed, *more))
            if groups and total > _BATCH_BYTES:
                break
            if total > _MAX_GROUP_BYTES:
                raise ModelNotSupported(
                    f"layer {group} would need {format_size(total)} of source tensors at once, more than "
                    f"{format_size(_MAX_GROUP_BYTES)}: {', '.join(tensor.name for tensor in more[:3])}",
                    "convert the checkpoint with `python -m mlx_lm convert` first, then convert its result",
                )
            groups.add(group)
            needed += more
        return groups, needed

    def _is_needed(self, tensor: SourceTensor) -> bool:
        """Whether anything comes of a tensor without a plain rename; found out once for all layers."""
        if tensor.num_bytes <= _SMALL_BYTES:
            return True
        kind = re.sub(r"\.\d+\.", ".N.", tensor.name)
        if kind not in self._yields:
            weights = _placeholders(self._source.tensors.values())
            del weights[tensor.name]
            try:
                self._yields[kind] = frozenset(self._sanitized(weights)) != self._outputs
            except (CheckpointIncomplete, CheckpointMismatch):
                self._yields[kind] = True
        return self._yields[kind]

    def _value(self, tensor: SourceTensor) -> mx.array:
        array = mx.zeros((tensor.num_bytes,), dtype=mx.uint8)
        self._reader.fill(bytes_of_array(array), tensor.file, tensor.offset)
        return array.view(MLX_DTYPES[tensor.dtype]).reshape(tensor.shape)

    def _sanitized(self, weights: Weights) -> Weights:
        try:
            return self._sanitize(weights)
        except KeyError as error:
            raise CheckpointIncomplete(
                f"{self._source.folder} lacks the tensor {error.args[0]}", "download the checkpoint again"
            ) from error
        except (ValueError, IndexError, TypeError) as error:
            raise CheckpointMismatch(
                f"mlx-lm cannot take the tensors of {self._source.folder} for a {self._source.config['model_type']}: "
                f"{error}",
                "check that config.json belongs to these tensors, or download both again",
            ) from error


def is_vision(name: str) -> bool:
    """Whether a source tensor belongs to the image encoder."""
    return name.startswith(("vision_tower.", "model.visual."))


def _placeholders(tensors: Iterable[SourceTensor], fill: float = 0.0) -> Weights:
    """Lazy arrays of the right shapes and types. fill: of those with floating point, so that use of one shows."""
    shared: dict[tuple[tuple[int, ...], str], mx.array] = {}
    found: Weights = {}
    for tensor in tensors:
        value = fill if tensor.dtype in FLOATS else 0
        if not _PER_EXPERT.search(tensor.name):
            found[tensor.name] = mx.full(tensor.shape, value, dtype=MLX_DTYPES[tensor.dtype])
            continue
        key = (tensor.shape, tensor.dtype)
        if key not in shared:
            shared[key] = mx.full(tensor.shape, value, dtype=MLX_DTYPES[tensor.dtype])
        found[tensor.name] = shared[key]
    return found
