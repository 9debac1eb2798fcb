"""The record files: one record an expert, one record a vocabulary row.

Owns how fields are laid out in a record and in which order the source's bytes become records.
Refuses to know where an expert's tensors lie (expert_forms) and how bytes are moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from ..errors import CheckpointIncomplete, ModelNotSupported
from ..manifest import (
    EMBEDDING_FILE,
    PAGE_BYTES,
    Embedding,
    ExpertLayer,
    Field,
    Quantization,
    RecordLayout,
    expert_file,
)
from ..sizes import round_up
from ..skeleton import ExpertModule, projections
from .dtypes import FLOATS
from .expert_forms import ExpertForms, ExpertTensor
from .formats import check_configured, infer_quantization, refuse_unstorable
from .segments import Columns, Extent, Matrix, Padding, QuantizedPart, QuantizedRows, Segment, TargetFile
from .tensors import StoredTensor, TensorFinder, quantized_shapes, require_shape

FIELD_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class _Stored:
    """One field of the records: what it is called, and the expert tensor that it is copied or quantised from.

    quantize: as what part (0 codes, 1 scales, 2 biases) and how; None for a copy.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: ExpertTensor
    quantize: tuple[int, Quantization] | None = None


class ExpertRecords:
    """Lays out expert layers. Raises CheckpointIncomplete, CheckpointMismatch and ModelNotSupported."""

    def __init__(
        self, config: dict[str, Any], forms: ExpertForms, finder: TensorFinder, quantize: dict[str, Quantization]
    ) -> None:
        self._config, self._forms, self._finder, self._quantize = config, forms, finder, quantize

    def layer(self, entry: ExpertModule, module: Any) -> tuple[ExpertLayer, TargetFile]:
        """The manifest entry and the file of one expert module of the model."""
        stored: list[_Stored] = []
        specs: dict[str, Quantization] = {}
        for projection, matrix in projections(module):
            full = tuple(matrix.weight.shape)
            parts, spec = self._projection(entry.path, projection, full, "bias" in matrix)
            stored += parts
            if spec is not None:
                specs[projection] = spec
        record = _aligned_record(stored)
        name = expert_file(entry.layer)
        layer = ExpertLayer(entry.layer, entry.path, name, entry.num_experts, entry.top_k, record, specs)
        segments = partial(_record_segments, stored, record, entry.num_experts)
        return layer, TargetFile(name, entry.num_experts * record.stride_bytes, segments)

    def _projection(
        self, module: str, projection: str, full: tuple[int, ...], has_bias: bool
    ) -> tuple[list[_Stored], Quantization | None]:
        path, model_type = f"{module}.{projection}", self._config.get("model_type")
        weight = self._required(module, projection, "weight", full)
        found = [weight]
        scales = self._optional(module, projection, "scales")
        if scales is not None:
            biases = self._optional(module, projection, "biases")
            spec: Quantization | None = _inferred(path, full, weight, scales, biases)
            assert spec is not None
            check_configured(self._config, path, spec)
            found += [scales] if biases is None else [scales, biases]
            stored = [_copied(tensor, projection) for tensor in found]
        else:
            require_shape(weight.name, (weight.num_experts, *weight.shape), full, model_type)
            spec = self._quantize.get(path) if weight.dtype in FLOATS else None
            stored = [_copied(weight, projection)] if spec is None else _quantized(weight, projection, spec)
        if has_bias:
            bias = self._required(module, projection, "bias", full[:-1])
            require_shape(bias.name, (bias.num_experts, *bias.shape), full[:-1], model_type)
            stored.append(_copied(bias, projection))
        return stored, spec

    def _required(self, module: str, projection: str, leaf: str, wanted: tuple[int, ...]) -> ExpertTensor:
        found = self._optional(module, projection, leaf)
        if found is None:
            raise CheckpointIncomplete(
                f"no tensor of the checkpoint gives {module}.{projection}.{leaf} {list(wanted)}",
                "download the checkpoint again, or check that config.json belongs to it",
            )
        return found

    def _optional(self, module: str, projection: str, leaf: str) -> ExpertTensor | None:
        found = self._forms.find(module, projection, leaf)
        if found is not None:
            refuse_unstorable(found.name, found.dtype)
            self._finder.take_expert([found.name])
        return found


def embedding_rows(path: str, tensors: list[StoredTensor], spec: Quantization | None) -> tuple[Embedding, TargetFile]:
    """The manifest entry and the file of the token embedding. Raises ModelNotSupported for a derived one."""
    num_rows = tensors[0].shape[0]
    fields, offset = [], 0
    for tensor in tensors:
        field = Field(tensor.name.rpartition(".")[2], tensor.dtype, tensor.shape[1:], offset)
        fields.append(field)
        offset += field.num_bytes
    entry = Embedding(path, EMBEDDING_FILE, num_rows, RecordLayout(tuple(fields), offset), spec)
    segments = [_row_segment(path, tensors)]
    return entry, TargetFile(EMBEDDING_FILE, num_rows * offset, lambda: segments)


def _row_segment(path: str, tensors: list[StoredTensor]) -> Segment:
    first = tensors[0].segment
    if isinstance(first, QuantizedPart):
        return QuantizedRows(first.matrix)
    parts = []
    for tensor in tensors:
        place, num_rows = tensor.segment, tensor.shape[0]
        if not isinstance(place, Extent):
            raise ModelNotSupported(
                f"the embedding {path} is not stored as it is used",
                "convert the checkpoint with `python -m mlx_lm convert` first, then convert its result",
            )
        row_bytes = place.num_bytes // num_rows
        parts.append(Extent(place.file, place.offset, row_bytes, num_rows, row_bytes))
    return Columns(tuple(parts))


def _aligned_record(stored: list[_Stored]) -> RecordLayout:
    fields, offset = [], 0
    for part in stored:
        field = Field(part.name, part.dtype, part.shape, round_up(offset, FIELD_ALIGNMENT))
        fields.append(field)
        offset = field.offset + field.num_bytes
    return RecordLayout(tuple(fields), round_up(offset, PAGE_BYTES))


def _record_segments(stored: list[_Stored], record: RecordLayout, num_experts: int) -> Iterator[Segment]:
    for expert in range(num_experts):
        position = 0
        for part, field in zip(stored, record.fields, strict=True):
            if field.offset > position:
                yield Padding(field.offset - position)
            yield _field_segment(part, expert)
            position = field.offset + field.num_bytes
        if record.stride_bytes > position:
            yield Padding(record.stride_bytes - position)


def _field_segment(part: _Stored, expert: int) -> Segment:
    place = part.source.place(expert)
    if part.quantize is None:
        return place
    (number, spec), shape = part.quantize, part.source.shape
    matrix = Matrix(place, part.source.dtype, prod(shape[:-1]), shape[-1], spec)
    return QuantizedPart(matrix, number, part.source.name)


def _copied(tensor: ExpertTensor, projection: str) -> _Stored:
    return _Stored(f"{projection}.{tensor.name.rpartition('.')[2]}", tensor.dtype, tensor.shape, tensor)


def _quantized(tensor: ExpertTensor, projection: str, spec: Quantization) -> list[_Stored]:
    shapes = quantized_shapes(tensor.shape, tensor.dtype, spec)
    return [
        _Stored(f"{projection}.{leaf}", dtype, shape, tensor, (number, spec))
        for number, (leaf, dtype, shape) in enumerate(shapes)
    ]


def _inferred(
    path: str, full: tuple[int, ...], weight: ExpertTensor, scales: ExpertTensor, biases: ExpertTensor | None
) -> Quantization:
    whole = [((tensor.num_experts, *tensor.shape), tensor.dtype) for tensor in (weight, scales)]
    if biases is not None:
        require_shape(biases.name, (biases.num_experts, *biases.shape), whole[1][0], "its scales")
    return infer_quantization(path, full, whole[0], whole[1], biases is not None)
