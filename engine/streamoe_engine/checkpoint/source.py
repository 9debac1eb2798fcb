"""What a source checkpoint has, by its safetensors headers alone: tensors, their places, the configuration.

Owns finding the shards (index or plain files, symlinks followed) and checking every header against its file.
Refuses to know what a tensor is for. No tensor is read here.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ..errors import CheckpointIncomplete, CheckpointMismatch
from ..manifest import MANIFEST_FILE
from .source_files import SourceFiles

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
SIDE_FILES = (
    CONFIG_FILE,
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
)
# Bits of an element, for every dtype that the safetensors format names.
DTYPE_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6}
DTYPE_BITS |= {"F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32}
DTYPE_BITS |= {"I64": 64, "U64": 64, "F64": 64, "C64": 64}
_MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
_SHARD_NUMBER = re.compile(r"-(\d+)-of-(\d+)\.safetensors$")
_AGAIN = "download the checkpoint again"


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """One tensor: file is the number of its shard, offset counts from the start of that file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint folder. files: shards first, then the side files there are, which `side_files` maps to numbers.

    fingerprint changes with any header, size or time of change of a file.
    """

    folder: Path
    config: dict[str, Any]
    files: tuple[Path, ...]
    side_files: dict[str, int]
    tensors: dict[str, SourceTensor]
    fingerprint: str

    def size_of(self, file: int) -> int:
        """Bytes of a file."""
        return self.files[file].stat().st_size


def is_checkpoint(path: Path) -> bool:
    """Whether a folder has config.json and safetensors, and is not a model folder already."""
    return (path / CONFIG_FILE).is_file() and any(path.glob("*.safetensors")) and not (path / MANIFEST_FILE).exists()


def read_source(folder: Path) -> Source:
    """The checkpoint in `folder`. Raises CheckpointIncomplete or CheckpointMismatch."""
    config = _read_json(folder / CONFIG_FILE)
    index = _read_index(folder / INDEX_FILE)
    shards = _shards(folder, index)
    side_files = [name for name in SIDE_FILES if (folder / name).is_file()]
    files = (*shards, *(folder / name for name in side_files))
    digest = hashlib.sha256()
    with SourceFiles(files) as opened:
        tensors = _read_headers(opened, len(shards), digest)
    for name, shard in (index or {}).items():
        if name not in tensors:
            raise CheckpointIncomplete(f"{folder / shard} lacks the tensor {name} that {INDEX_FILE} names", _AGAIN)
    for path in files:
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    numbers = {name: len(shards) + i for i, name in enumerate(side_files)}
    return Source(folder, config, files, numbers, tensors, digest.hexdigest())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointIncomplete(f"{path} is missing", "give the folder that holds the checkpoint's files") from error
    except OSError as error:
        raise CheckpointIncomplete(f"{path} cannot be read: {error.strerror}", _AGAIN) from error
    except ValueError as error:
        raise CheckpointIncomplete(f"{path} is not JSON: {error}", _AGAIN) from error
    if not isinstance(found, dict):
        raise CheckpointIncomplete(f"{path} is not a JSON object", _AGAIN)
    return found


def _read_index(path: Path) -> dict[str, str] | None:
    """Shard name by tensor name, or None where a checkpoint has no index."""
    if not path.is_file():
        return None
    found = _read_json(path).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise CheckpointIncomplete(f"{path} has no weight_map from tensor names to file names", _AGAIN)
    return found


def _shards(folder: Path, index: dict[str, str] | None) -> tuple[Path, ...]:
    if index is not None:
        names = sorted(set(index.values()))
    else:
        # Folders may hold safetensors of other tools beside the model's own.
        found = list(folder.glob("model*.safetensors")) or list(folder.glob("*.safetensors"))
        names = sorted({path.name for path in found} | _numbered_shards([path.name for path in found]))
    if not names:
        raise CheckpointIncomplete(
            f"{folder} has no *.safetensors", "give the folder that holds the checkpoint's files"
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointIncomplete(
            f"{folder} lacks {len(missing)} of {len(names)} shards: {', '.join(missing[:4])}",
            "download the missing files, then convert again",
        )
    return tuple(folder / name for name in names)


def _numbered_shards(names: list[str]) -> set[str]:
    """All shard names that numbered ones imply: "model-00001-of-00002.safetensors" implies the second."""
    implied: set[str] = set()
    for name in names:
        match = _SHARD_NUMBER.search(name)
        if match:
            digits, count = len(match[1]), int(match[2])
            start = name[: match.start()]
            implied |= {f"{start}-{i + 1:0{digits}d}-of-{match[2]}.safetensors" for i in range(count)}
    return implied


def _read_headers(files: SourceFiles, num_shards: int, digest: Any) -> dict[str, SourceTensor]:
    tensors: dict[str, SourceTensor] = {}
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}  # per-expert checkpoints repeat three shapes 50,000 times
    for file in range(num_shards):
        raw, data_start = _raw_header(files, file)
        digest.update(raw)
        for name, entry in _parsed_header(raw, files.paths[file]).items():
            tensor = _tensor(name, entry, file, data_start, files, shapes)
            if name in tensors:
                raise CheckpointMismatch(
                    f"{name} is both in {files.paths[tensors[name].file].name} and {files.paths[file].name}",
                    "remove the file that does not belong to this checkpoint",
                )
            tensors[name] = tensor
    return tensors


def _raw_header(files: SourceFiles, file: int) -> tuple[bytes, int]:
    path, size = files.paths[file], files.num_bytes(file)
    if size < 8:
        raise CheckpointIncomplete(f"{path} has {size} B, less than a safetensors header", "download that file again")
    length = int.from_bytes(files.read(file, 0, 8), "little")
    if length > min(size - 8, _MAX_HEADER_BYTES):
        raise CheckpointIncomplete(
            f"{path} is not safetensors: its header would have {length} B, the file has {size} B",
            "download that file again",
        )
    return files.read(file, 8, length), 8 + length


def _parsed_header(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
    except (ValueError, AttributeError) as error:
        raise CheckpointIncomplete(f"{path} has a corrupt header: {error}", "download that file again") from error
    return header


def _tensor(
    name: str,
    entry: Any,
    file: int,
    data_start: int,
    files: SourceFiles,
    shapes: dict[tuple[int, ...], tuple[int, ...]],
) -> SourceTensor:
    path = files.paths[file]
    try:
        dtype, shape = sys.intern(entry["dtype"]), tuple(map(int, entry["shape"]))
        begin, end = map(int, entry["data_offsets"])
        bits = DTYPE_BITS.get(dtype)
        if begin < 0 or end < begin or min(shape, default=0) < 0:
            raise ValueError("negative lengths")
        if bits is not None and (end - begin) * 8 != prod(shape) * bits:
            raise ValueError(f"{end - begin} B for shape {list(shape)} of {dtype}")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointIncomplete(
            f"{path} has a corrupt header at {name}: {error}", "download that file again"
        ) from error
    if data_start + end > files.num_bytes(file):
        raise CheckpointIncomplete(
            f"{path} is cut short: {name} ends at {data_start + end} B, the file has {files.num_bytes(file)} B",
            "download that file again",
        )
    return SourceTensor(name, dtype, shapes.setdefault(shape, shape), file, data_start + begin, end - begin)
