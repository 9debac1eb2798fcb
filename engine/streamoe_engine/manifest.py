"""The nouns of a model folder: what files it has, how a record is laid out, what each layer needs.

Owns the manifest's format and its JSON form. Refuses to know how files are read, written or computed with.

    manifest.json                 this module
    config.json                   the checkpoint's own configuration, unchanged
    tokenizer.json, ...           copied as they are
    resident/layer-0007.safetensors, resident/tail.safetensors (final norm and output head)
    experts/layer-0007.records    one record an expert, expert e at e * stride_bytes
    embedding.records             one record a vocabulary row, packed without gaps
    vision/vision.safetensors     only where the checkpoint has an image encoder
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from .errors import FormatVersionUnknown, ModelFolderError, NotAModelFolder

FORMAT_NAME = "streamoe-model"
FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
# 16 KiB is the largest page of the supported machines (Apple Silicon), so one folder serves all of them.
PAGE_BYTES = 16384
DTYPE_BYTES = {"U8": 1, "BF16": 2, "F16": 2, "U32": 4, "F32": 4}


@dataclass(frozen=True, slots=True)
class Field:
    """One tensor of a record: name such as "gate_proj.weight", safetensors dtype name, shape, offset in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Bytes of this tensor, without padding."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How one record (an expert, or an embedding row) lies in its file; stride_bytes includes padding."""

    fields: tuple[Field, ...]
    stride_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Bytes without the padding at the end."""
        return max(field.offset + field.num_bytes for field in self.fields)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a matrix is quantised, in MLX's terms: group size, bits a weight, mode ("affine", "mxfp4", ...)."""

    group_size: int
    bits: int
    mode: str = "affine"


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer: their file, their record layout, and how each projection is quantised.

    module: path of the expert module in the model, such as "model.layers.3.mlp.switch_mlp".
    quantization: by projection name ("gate_proj", ...); a projection not named is stored unquantised.
    """

    layer: int
    module: str
    file: str
    num_experts: int
    top_k: int
    record: RecordLayout
    quantization: dict[str, Quantization]


@dataclass(frozen=True, slots=True)
class Embedding:
    """The token embedding as row records; quantization is None for rows stored unquantised."""

    module: str
    file: str
    num_rows: int
    record: RecordLayout
    quantization: Quantization | None


@dataclass(frozen=True, slots=True)
class LayerState:
    """What one sequence leaves in one layer.

    kind "kv": key_dims and value_dims are elements per token, over all heads.
    kind "window": the same, but only the last `window` tokens are kept.
    kind "recurrent": arrays are the shapes of the float32 arrays kept, whatever the length.
    """

    kind: Literal["kv", "window", "recurrent"]
    key_dims: int = 0
    value_dims: int = 0
    window: int = 0
    arrays: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and SHA-256 (hex) of one file of the folder."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything the planner and the store need, without opening another file.

    family: mlx-lm's model_type. resident: by part ("layer-0007", "tail"), the fields of that safetensors file,
    offset counted from the start of its data. states: one a layer.
    """

    family: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    num_heads: int
    max_context: int
    experts: tuple[ExpertLayer, ...]
    embedding: Embedding
    resident: dict[str, tuple[Field, ...]]
    states: tuple[LayerState, ...]
    files: dict[str, FileEntry]
    source: str = ""
    has_vision: bool = False
    format_version: int = FORMAT_VERSION

    @property
    def experts_by_layer(self) -> dict[int, ExpertLayer]:
        """The Mixture-of-Experts layers by their number; dense layers are absent."""
        return {entry.layer: entry for entry in self.experts}


def layer_part(layer: int) -> str:
    """Name of a layer's resident part: "layer-0007"."""
    return f"layer-{layer:04d}"


TAIL_PART = "tail"


def resident_file(part: str) -> str:
    """Path, inside the folder, of a resident part."""
    return f"resident/{part}.safetensors"


def expert_file(layer: int) -> str:
    """Path, inside the folder, of a layer's record file."""
    return f"experts/{layer_part(layer)}.records"


EMBEDDING_FILE = "embedding.records"


def manifest_to_json(manifest: Manifest) -> str:
    """The manifest as JSON text, keys in a stable order."""
    return json.dumps({"format": FORMAT_NAME, **asdict(manifest)}, indent=1) + "\n"


def manifest_from_json(text: str, path: Path) -> Manifest:
    """The manifest in `text`; `path` is named in errors.

    Raises NotAModelFolder, FormatVersionUnknown, or ModelFolderError for text that is not a whole manifest.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ModelFolderError(f"{path} is not JSON: {error}", "convert the checkpoint again") from error
    if not isinstance(raw, dict) or raw.pop("format", None) != FORMAT_NAME:
        raise NotAModelFolder(f"{path} is not a streamoe manifest", "convert the checkpoint: streamoe convert SRC DST")
    if raw.get("format_version") != FORMAT_VERSION:
        raise FormatVersionUnknown(
            f"{path} has format version {raw.get('format_version')}, this program reads {FORMAT_VERSION}",
            "convert the checkpoint again with this version: streamoe convert SRC DST",
        )
    try:
        return _manifest(raw)
    except (KeyError, TypeError) as error:
        raise ModelFolderError(f"{path} lacks a part of a manifest: {error}", "convert the checkpoint again") from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a model folder. Raises as manifest_from_json, and NotAModelFolder where there is none."""
    path = folder / MANIFEST_FILE
    try:
        text = path.read_text()
    except OSError as error:
        raise NotAModelFolder(
            f"{folder} has no {MANIFEST_FILE} ({error.strerror})",
            "give a converted model folder, or convert a checkpoint: streamoe convert SRC DST",
        ) from error
    return manifest_from_json(text, path)


def _field(raw: dict[str, Any]) -> Field:
    return Field(raw["name"], raw["dtype"], tuple(raw["shape"]), raw["offset"])


def _record(raw: dict[str, Any]) -> RecordLayout:
    return RecordLayout(tuple(map(_field, raw["fields"])), raw["stride_bytes"])


def _quantization(raw: dict[str, Any] | None) -> Quantization | None:
    return Quantization(**raw) if raw else None


def _expert_layer(raw: dict[str, Any]) -> ExpertLayer:
    quantization = {name: Quantization(**spec) for name, spec in raw["quantization"].items()}
    return ExpertLayer(**{**raw, "record": _record(raw["record"]), "quantization": quantization})


def _embedding(raw: dict[str, Any]) -> Embedding:
    return Embedding(**{**raw, "record": _record(raw["record"]), "quantization": _quantization(raw["quantization"])})


def _state(raw: dict[str, Any]) -> LayerState:
    return LayerState(**{**raw, "arrays": tuple(map(tuple, raw["arrays"]))})


def _manifest(raw: dict[str, Any]) -> Manifest:
    return Manifest(
        **{
            **raw,
            "experts": tuple(map(_expert_layer, raw["experts"])),
            "embedding": _embedding(raw["embedding"]),
            "resident": {part: tuple(map(_field, fields)) for part, fields in raw["resident"].items()},
            "states": tuple(map(_state, raw["states"])),
            "files": {name: FileEntry(**entry) for name, entry in raw["files"].items()},
        }
    )
