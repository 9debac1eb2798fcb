"""Every tensor that a model folder keeps outside its experts: name, dtype, shape, and how its bytes come about.

Owns the comparison of what the model class wants with what the checkpoint has: each parameter is found and has its
shape, and nothing is left over. Refuses to know files and layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.nn as nn
from mlx.utils import tree_flatten

from ..errors import CheckpointIncomplete, CheckpointMismatch
from ..manifest import Quantization
from ..sizes import MIB
from .dtypes import FLOATS, ITEM_BYTES
from .formats import check_configured, infer_quantization, refuse_unstorable
from .sanitized import SanitizedTensor, SanitizedView
from .segments import Extent, Matrix, Origin, QuantizedPart, Segment

# Scales and biases of an output head of 1.2 G weights take 147 MB: computing them again is slower but holds less.
_MAX_KEPT_BYTES = 16 * MIB
_CHECK = "check that config.json belongs to these tensors, or download both again"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as the folder keeps it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    segment: Segment

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def quantized_shapes(full: tuple[int, ...], dtype: str, spec: Quantization) -> list[tuple[str, str, tuple[int, ...]]]:
    """Leaf, dtype and shape of what mx.quantize makes of a floating-point matrix, in affine mode."""
    lead, width = full[:-1], full[-1]
    groups = (*lead, width // spec.group_size)
    return [("weight", "U32", (*lead, width * spec.bits // 32)), ("scales", dtype, groups), ("biases", dtype, groups)]


def require_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...], model_type: Any) -> None:
    """Raises CheckpointMismatch naming both shapes."""
    if found != wanted:
        raise CheckpointMismatch(
            f"{name} has shape {list(found)}; config.json ({model_type}) asks for {list(wanted)}", _CHECK
        )


class TensorFinder:
    """Looks up parameters of the model in the checkpoint.

    quantize: matrices to be quantised on the way, by module path; empty where everything is kept as it is.
    """

    def __init__(
        self, config: dict[str, Any], model: nn.Module, view: SanitizedView, quantize: dict[str, Quantization]
    ) -> None:
        self._config, self._view, self._quantize = config, view, quantize
        self.parameters: dict[str, tuple[int, ...]] = {
            name: tuple(array.shape) for name, array in tree_flatten(model.parameters())
        }
        self._taken: set[str] = set()

    def take(self, name: str) -> list[StoredTensor]:
        """The tensors that one parameter is kept as: itself, or codes, scales and biases.

        Raises CheckpointIncomplete, CheckpointMismatch and ModelNotSupported.
        """
        path, _, leaf = name.rpartition(".")
        full, found = self.parameters[name], self._found(name)
        if leaf == "weight" and f"{path}.scales" in self._view.tensors:
            return self._take_quantized(path, full, found)
        require_shape(name, found.shape, full, self._config.get("model_type"))
        if leaf == "weight" and path in self._quantize and found.dtype in FLOATS:
            return quantized_tensors(path, full, found.dtype, self._quantize[path], self.origin(found))
        return [self._kept(found)]

    def spec_of(self, path: str) -> Quantization | None:
        """How the matrix of a module is kept; None for floating point."""
        found = self._view.tensors
        if f"{path}.scales" not in found:
            return self._quantize.get(path)
        weight, scales = found[f"{path}.weight"], found[f"{path}.scales"]
        spec = infer_quantization(
            path,
            self.parameters[f"{path}.weight"],
            (weight.shape, weight.dtype),
            (scales.shape, scales.dtype),
            f"{path}.biases" in found,
        )
        check_configured(self._config, path, spec)
        return spec

    def take_expert(self, names: list[str]) -> None:
        """Note names that the expert reader has used."""
        self._taken |= set(names)

    def refuse_leftovers(self) -> None:
        """Raises CheckpointMismatch for tensors that are no parameter of the model."""
        left = [name for name in self._view.tensors if name not in self._taken]
        if left:
            first = self._view.tensors[left[0]]
            raise CheckpointMismatch(
                f"{len(left)} tensors are no part of a {self._config.get('model_type')} with this config.json; "
                f"the first is {first.name} {list(first.shape)}",
                _CHECK,
            )

    def origin(self, tensor: SanitizedTensor) -> Origin:
        """Where a tensor's bytes come from."""
        if tensor.source is None:
            return self._view.derived(tensor)
        return Extent(tensor.source.file, tensor.source.offset, tensor.source.num_bytes)

    def _found(self, name: str) -> SanitizedTensor:
        tensor = self._view.tensors.get(name)
        if tensor is None:
            raise CheckpointIncomplete(
                f"no tensor of the checkpoint gives {name} {list(self.parameters.get(name, ()))}",
                "download the checkpoint again, or check that config.json belongs to it",
            )
        refuse_unstorable(name, tensor.dtype)
        self._taken.add(name)
        return tensor

    def _kept(self, tensor: SanitizedTensor) -> StoredTensor:
        return StoredTensor(tensor.name, tensor.dtype, tensor.shape, self.origin(tensor))

    def _take_quantized(self, path: str, full: tuple[int, ...], weight: SanitizedTensor) -> list[StoredTensor]:
        self.spec_of(path)
        scales = self._found(f"{path}.scales")
        found = [weight, scales]
        if f"{path}.biases" in self._view.tensors:
            biases = self._found(f"{path}.biases")
            require_shape(biases.name, biases.shape, scales.shape, self._config.get("model_type"))
            found.append(biases)
        return [self._kept(tensor) for tensor in found]


def quantized_tensors(
    path: str, full: tuple[int, ...], dtype: str, spec: Quantization, origin: Origin
) -> list[StoredTensor]:
    """Codes, scales and biases of a matrix to be quantised on the way."""
    matrix = Matrix(origin, dtype, prod(full[:-1]), full[-1], spec)
    shapes = quantized_shapes(full, dtype, spec)
    kept_bytes = sum(prod(shape) * ITEM_BYTES[kind] for _, kind, shape in shapes[1:])
    key = path if kept_bytes <= _MAX_KEPT_BYTES else None
    return [
        StoredTensor(f"{path}.{leaf}", kind, shape, QuantizedPart(matrix, part, key))
        for part, (leaf, kind, shape) in enumerate(shapes)
    ]
