"""The opened model folder: checked files, resident parts, record files.

Owns the folder's files while a band is open. Everything is read past the page cache through one bounce buffer.
Refuses to know policy, and what tensors are for.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelFileCorrupt, ModelFileMissing, ModelFileWrongSize, ModelFolderError
from .manifest import Manifest, read_manifest, resident_file
from .sizes import MIB
from .uncached import UncachedFile, aligned_buffer, read_blocks

BOUNCE_BYTES = 8 * MIB
CONFIG_FILE = "config.json"


class ModelStore:
    """A model folder, opened for some layers. close() when the band is closed."""

    def __init__(self, folder: Path) -> None:
        """Raises NotAModelFolder, FormatVersionUnknown or ModelFolderError."""
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self._open_files: list[UncachedFile] = []

    def config(self) -> dict[str, Any]:
        """config.json. Raises ModelFileMissing, ModelFileCorrupt or ModelFolderError."""
        self.check_file(CONFIG_FILE)
        data = (self.folder / CONFIG_FILE).read_bytes()
        self._check_hash(CONFIG_FILE, hashlib.sha256(data).hexdigest())
        try:
            return json.loads(data)
        except ValueError as error:
            raise ModelFolderError(f"{self.folder / CONFIG_FILE} is not JSON: {error}", "convert again") from error

    def check_file(self, name: str) -> None:
        """Raises ModelFileMissing or ModelFileWrongSize when a file is not as the manifest says."""
        path, entry = self.folder / name, self.manifest.files.get(name)
        if entry is None:
            raise ModelFolderError(f"{self.folder}'s manifest does not list {name}", "convert the checkpoint again")
        try:
            found = path.stat().st_size
        except FileNotFoundError as error:
            raise ModelFileMissing(f"{path} is missing", "convert the checkpoint again, or restore the file") from error
        if found != entry.num_bytes:
            raise ModelFileWrongSize(
                f"{path} has {found} B, the manifest says {entry.num_bytes} B",
                "convert the checkpoint again, or restore the file",
            )

    def open_records(self, name: str) -> UncachedFile:
        """A record file, checked by size and kept open until close()."""
        self.check_file(name)
        file = UncachedFile(self.folder / name)
        self._open_files.append(file)
        return file

    def load_resident(self, part: str, targets: Mapping[str, np.ndarray]) -> None:
        """Fill targets (by tensor name, uint8, of the tensor's size) from a resident part ("layer-0007", "tail");
        tensors without a target are passed over.

        The file's SHA-256 is checked on the way. Raises ModelFileMissing, ModelFileWrongSize, ModelFileCorrupt
        and ReadFailed. Memory beside the targets: BOUNCE_BYTES.
        """
        name, fields = resident_file(part), self.manifest.resident[part]
        self.check_file(name)
        spans = [(field.offset, targets[field.name]) for field in fields if field.num_bytes and field.name in targets]
        digest = hashlib.sha256()
        _scatter(self._blocks(name, digest), spans)
        self._check_hash(name, digest.hexdigest())

    def close(self) -> None:
        """Close every record file."""
        for file in self._open_files:
            file.close()
        self._open_files.clear()

    def _blocks(self, name: str, digest: Any) -> Iterator[memoryview]:
        buffer = aligned_buffer(BOUNCE_BYTES)
        for block in read_blocks(self.folder / name, 0, self.manifest.files[name].num_bytes, buffer):
            digest.update(block)
            yield block

    def _check_hash(self, name: str, found: str) -> None:
        expected = self.manifest.files[name].sha256
        if found != expected:
            raise ModelFileCorrupt(
                f"{self.folder / name} has SHA-256 {found[:16]}…, the manifest says {expected[:16]}…",
                "convert the checkpoint again, or restore the file",
            )


def _scatter(blocks: Iterator[memoryview], spans: list[tuple[int, np.ndarray]]) -> None:
    """Copy a safetensors file, given as consecutive blocks, into the spans (offset from its data, bytes)."""
    spans = sorted(spans, key=lambda span: span[0])
    position, data_start = 0, None
    for block in blocks:
        if data_start is None:
            data_start = 8 + struct.unpack("<Q", block[:8])[0]
        begin = position - data_start  # this block's place, counted from the start of the data
        source = np.frombuffer(block, dtype=np.uint8)
        for offset, target in spans:
            low, high = max(offset, begin), min(offset + len(target), begin + len(block))
            if low < high:
                target[low - offset : high - offset] = source[low - begin : high - begin]
        spans = [span for span in spans if span[0] + len(span[1]) > begin + len(block)]
        position += len(block)
    assert not spans, "the manifest's offsets lie within the file's size"
