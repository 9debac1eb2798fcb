"""Where the matrices of one expert lie in a source checkpoint, in each of the forms that checkpoints come in.

    stacked     switch_mlp.gate_proj.weight [experts, ...]             mlx-community
    separate    experts.7.gate_proj.weight, or w1, w3, w2              Hugging Face
    halves      experts.gate_up_proj [experts, 2 x inner, width]       Hugging Face: qwen3_5_moe
    interleaved experts.gate_up_proj_blocks, rows gate, up, gate, ...  Hugging Face: gpt_oss (MXFP4)

Owns these forms. Refuses to know what is done with the bytes. What mlx-lm makes of the same tensors (the sanitized
shape) is checked against each form found.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import prod

from ..errors import ModelNotSupported
from ..skeleton import layer_of
from .dtypes import ITEM_BYTES
from .sanitized import SanitizedTensor, SanitizedView
from .segments import Extent
from .source import Source, SourceTensor

_SOURCE_NAME = re.compile(r"(?:.*\.)?layers\.(\d+)\..*\.experts\.(?:(\d+)\.)?(.+)")
_OTHER_NAMES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_HALVES = ("qwen3_5_moe", "qwen3_5_moe_text")
_INTERLEAVED = ("gpt_oss",)


@dataclass(frozen=True, slots=True)
class ExpertTensor:
    """One tensor of every expert of a layer: dtype and shape of one expert's, and where each lies.

    separate: a source tensor for each expert. Otherwise `first` is the first expert's place, and each expert after it
    lies `step` bytes on.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_experts: int
    first: Extent
    step: int = 0
    separate: tuple[SourceTensor, ...] = ()

    def place(self, expert: int) -> Extent:
        """Where this expert's tensor lies."""
        if self.separate:
            tensor = self.separate[expert]
            return _rows(tensor, tensor.offset, tensor.shape)
        return self.first.shifted(expert * self.step)


class ExpertForms:
    """Finds expert tensors by their mlx-lm names."""

    def __init__(self, source: Source, view: SanitizedView) -> None:
        self._family = str(source.config.get("model_type"))
        self._view = view
        self._by_layer: dict[int, dict[tuple[int | None, str], SourceTensor]] = defaultdict(dict)
        for tensor in source.tensors.values():
            match = _SOURCE_NAME.fullmatch(tensor.name)
            # Layers for multi-token prediction count from 0 again; every sanitize drops them.
            if match and "mtp." not in tensor.name:
                expert = int(match[2]) if match[2] else None
                self._by_layer[int(match[1])][expert, sys.intern(match[3])] = tensor

    def find(self, module: str, projection: str, leaf: str) -> ExpertTensor | None:
        """The tensor such as "model.layers.3.mlp.switch_mlp", "gate_proj", "weight"; None where there is none.

        Raises ModelNotSupported where mlx-lm makes it from tensors in a form that is not known here.
        """
        wanted = self._view.tensors.get(f"{module}.{projection}.{leaf}")
        if wanted is None:
            return None
        if wanted.source is not None:
            return _stacked(wanted, wanted.source)
        layer = self._by_layer[layer_of(module)]
        found = (
            self._separate(layer, wanted, projection, leaf)
            or self._halves(layer, wanted, projection, leaf)
            or self._interleaved(layer, wanted, projection, leaf)
        )
        if found is None or (found.num_experts, *found.shape) != wanted.shape or found.dtype != wanted.dtype:
            raise ModelNotSupported(
                f"{wanted.name} {list(wanted.shape)} is made from tensors in a form that has no reader here",
                "convert the checkpoint with `python -m mlx_lm convert` first, then convert its result",
            )
        return found

    @staticmethod
    def _separate(
        layer: dict[tuple[int | None, str], SourceTensor], wanted: SanitizedTensor, projection: str, leaf: str
    ) -> ExpertTensor | None:
        for name in (projection, _OTHER_NAMES.get(projection)):
            parts = [layer.get((expert, f"{name}.{leaf}")) for expert in range(wanted.shape[0])]
            tensors = [part for part in parts if part is not None and part.shape == wanted.shape[1:]]
            if len(tensors) == len(parts) and len({part.dtype for part in tensors}) == 1:
                one = tensors[0]
                place = _rows(one, one.offset, one.shape)
                return ExpertTensor(wanted.name, one.dtype, one.shape, len(tensors), place, separate=tuple(tensors))
        return None

    def _halves(
        self, layer: dict[tuple[int | None, str], SourceTensor], wanted: SanitizedTensor, projection: str, leaf: str
    ) -> ExpertTensor | None:
        fused, down = layer.get((None, "gate_up_proj")), layer.get((None, "down_proj"))
        if self._family not in _HALVES or leaf != "weight" or fused is None or down is None:
            return None
        if projection == "down_proj":
            return _stacked(wanted, down)
        shape = (fused.shape[1] // 2, fused.shape[2])
        num_bytes = prod(shape) * ITEM_BYTES[fused.dtype]
        offset = fused.offset + (num_bytes if projection == "up_proj" else 0)
        place = _rows(fused, offset, shape)
        return ExpertTensor(wanted.name, fused.dtype, shape, fused.shape[0], place, 2 * num_bytes)

    def _interleaved(
        self, layer: dict[tuple[int | None, str], SourceTensor], wanted: SanitizedTensor, projection: str, leaf: str
    ) -> ExpertTensor | None:
        kind = {"weight": "blocks", "scales": "scales", "bias": "bias"}.get(leaf)
        base = "down_proj" if projection == "down_proj" else "gate_up_proj"
        source = layer.get((None, f"{base}_{kind}"))
        if self._family not in _INTERLEAVED or source is None:
            return None
        rows, row_bytes = source.shape[1], prod(source.shape[2:]) * ITEM_BYTES[source.dtype]
        # Four bytes of packed codes are one of MLX's words.
        dtype, width = ("U32", (row_bytes // 4,)) if kind == "blocks" else (source.dtype, source.shape[2:])
        step = rows * row_bytes
        if base == "down_proj":
            place = Extent(source.file, source.offset, row_bytes, rows, row_bytes)
            return ExpertTensor(wanted.name, dtype, (rows, *width), source.shape[0], place, step)
        offset = source.offset + (row_bytes if projection == "up_proj" else 0)
        place = Extent(source.file, offset, row_bytes, rows // 2, 2 * row_bytes)
        return ExpertTensor(wanted.name, dtype, (rows // 2, *width), source.shape[0], place, step)


def _rows(tensor: SourceTensor, offset: int, shape: tuple[int, ...]) -> Extent:
    """The rows (along the last dimension) of a tensor of this shape at offset."""
    row_bytes = (shape[-1] if shape else 1) * ITEM_BYTES[tensor.dtype]
    return Extent(tensor.file, offset, row_bytes, prod(shape[:-1]), row_bytes)


def _stacked(wanted: SanitizedTensor, source: SourceTensor) -> ExpertTensor:
    shape = source.shape[1:]
    place = _rows(source, source.offset, shape)
    return ExpertTensor(wanted.name, source.dtype, shape, source.shape[0], place, place.num_bytes)
