"""What a checkpoint becomes: the manifest, and every file of the model folder with what it is made of.

Owns which tensor goes into which file. Nothing is written here, and of the source only headers are read.
Refuses to know how bytes are moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlx.nn as nn

from ..manifest import (
    DTYPE_BYTES,
    TAIL_PART,
    Embedding,
    ExpertLayer,
    Field,
    Manifest,
    Quantization,
    layer_part,
    resident_file,
)
from ..sizes import round_up
from ..skeleton import Architecture, build_model, expert_modules, layer_of, probe
from ..uncached import ALIGNMENT
from .expert_forms import ExpertForms
from .formats import decide_quantization, refuse_foreign_formats, refuse_unstorable
from .options import ConvertOptions
from .records import ExpertRecords, embedding_rows
from .sanitized import SanitizedView, is_vision
from .segments import Extent, Segment, TargetFile
from .source import Source
from .source_files import SourceReader
from .tensors import StoredTensor, TensorFinder

VISION_FILE = "vision/vision.safetensors"
# Tensors of whole cache lines come first, so that each of them starts at one.
_CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Outline:
    """manifest lacks only its `files`; files are in the order in which they are best written."""

    manifest: Manifest
    files: tuple[TargetFile, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all files, the manifest excepted."""
        return sum(file.num_bytes for file in self.files)


def outline_folder(source: Source, options: ConvertOptions, reader: SourceReader) -> Outline:
    """The model folder that `source` becomes. reader: of its files, for tensors that must be computed.

    Raises ModelNotSupported, CheckpointIncomplete and CheckpointMismatch.
    """
    refuse_foreign_formats(source)
    architecture, model = probe(source.config), build_model(source.config)
    modules = expert_modules(model)
    view = SanitizedView(model, source, modules, reader)
    is_quantized = any(name.endswith(".scales") for name in view.tensors)
    quantize = {} if is_quantized or options.quantize == "keep" else _decide(model, options)
    finder = TensorFinder(source.config, model, view, quantize)
    records = ExpertRecords(source.config, ExpertForms(source, view), finder, quantize)
    experts = [records.layer(entry, modules[entry.path]) for entry in architecture.experts]
    parts = _resident_tensors(architecture, modules, finder)
    weight = f"{architecture.embedding_path}.weight"
    table = finder.take(weight)
    if architecture.head_path is None:
        parts[TAIL_PART] += table
    finder.refuse_leftovers()
    embedding, embedding_file = embedding_rows(
        architecture.embedding_path, table, finder.spec_of(architecture.embedding_path)
    )
    residents = {part: _safetensors(resident_file(part), tensors) for part, tensors in parts.items()}
    vision = _vision_tensors(source)
    files = [
        *(TargetFile(name, source.size_of(i), partial(_whole, source, i)) for name, i in source.side_files.items()),
        *(file for file, _ in residents.values()),
        embedding_file,
        *(file for _, file in experts),
        *([_safetensors(VISION_FILE, vision)[0]] if vision else []),
    ]
    fields = {part: fields for part, (_, fields) in residents.items()}
    manifest = _manifest(source, architecture, [layer for layer, _ in experts], embedding, fields, bool(vision))
    return Outline(manifest, tuple(files))


def _decide(model: nn.Module, options: ConvertOptions) -> dict[str, Quantization]:
    return decide_quantization(model, options.group_size, options.bits)


def _manifest(
    source: Source,
    architecture: Architecture,
    experts: list[ExpertLayer],
    embedding: Embedding,
    resident: dict[str, tuple[Field, ...]],
    has_vision: bool,
) -> Manifest:
    return Manifest(
        family=architecture.family,
        num_layers=architecture.num_layers,
        hidden_size=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        num_heads=architecture.num_heads,
        max_context=architecture.max_context,
        experts=tuple(experts),
        embedding=embedding,
        resident=resident,
        states=architecture.states,
        files={},
        source=Path(os.path.abspath(source.folder)).name,
        has_vision=has_vision,
    )


def _resident_tensors(
    architecture: Architecture, modules: Iterable[str], finder: TensorFinder
) -> dict[str, list[StoredTensor]]:
    """The tensors of each resident part: the tail first, then the layers in order."""
    experts = tuple(f"{path}." for path in modules)
    parts: dict[str, list[StoredTensor]] = {TAIL_PART: []}
    parts |= {layer_part(layer): [] for layer in range(architecture.num_layers)}
    for name in finder.parameters:
        if name == f"{architecture.embedding_path}.weight" or name.startswith(experts):
            continue
        layer = layer_of(name)
        parts[layer_part(layer) if layer >= 0 else TAIL_PART] += finder.take(name)
    return parts


def _vision_tensors(source: Source) -> list[StoredTensor]:
    found = []
    for tensor in source.tensors.values():
        if is_vision(tensor.name):
            refuse_unstorable(tensor.name, tensor.dtype)
            place = Extent(tensor.file, tensor.offset, tensor.num_bytes)
            found.append(StoredTensor(tensor.name, tensor.dtype, tensor.shape, place))
    return found


def _whole(source: Source, file: int) -> list[Segment]:
    return [Extent(file, 0, source.size_of(file))]


def _safetensors(name: str, tensors: list[StoredTensor]) -> tuple[TargetFile, tuple[Field, ...]]:
    """A standard safetensors file of these tensors, and its fields. Data starts at a block of the disk.

    The format allows no holes, so alignment comes from order: whole cache lines first, then the wider types.
    """
    ordered = sorted(tensors, key=lambda t: (t.num_bytes % _CACHE_LINE_BYTES != 0, -DTYPE_BYTES[t.dtype]))
    fields, offset = [], 0
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    for tensor in ordered:
        fields.append(Field(tensor.name, tensor.dtype, tensor.shape, offset))
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.num_bytes],
        }
        offset += tensor.num_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(round_up(len(text) + 8, ALIGNMENT) - 8)
    segments = [len(text).to_bytes(8, "little") + text, *(tensor.segment for tensor in ordered)]
    return TargetFile(name, len(text) + 8 + offset, lambda: segments), tuple(fields)
