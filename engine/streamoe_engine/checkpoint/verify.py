"""A model folder checked against its manifest: every file there, of the right size, with the right SHA-256.

Owns the check of a whole folder; files are read past the page cache. Refuses to know what they hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import ModelFileCorrupt, ModelFileMissing, ModelFileWrongSize
from ..huge_pages import huge_buffer
from ..manifest import FileEntry, Manifest, read_manifest
from ..sizes import MIB
from ..uncached import UncachedFile
from ..uncached_write import padded
from .options import Progress, Report

_BLOCK_BYTES = 16 * MIB
_RESTORE = "convert the checkpoint again, or restore the file"


def verify_folder(folder: Path, report: Report | None = None, names: Iterable[str] | None = None) -> Manifest:
    """The manifest of a folder whose every file is as it was written. report is called at least every 16 MiB.

    names: check these files only, such as fingerprint.band_files of a folder that has no others.
    Raises NotAModelFolder, FormatVersionUnknown, ModelFileMissing, ModelFileWrongSize, ModelFileCorrupt, ReadFailed.
    """
    manifest = read_manifest(folder)
    entries = manifest.files if names is None else {name: manifest.files[name] for name in names}
    for name, entry in entries.items():
        _check_size(folder / name, entry)
    checker = _Checker(sum(entry.num_bytes for entry in entries.values()), report)
    for name, entry in entries.items():
        found = checker.sha256(folder / name, name)
        if found != entry.sha256:
            raise ModelFileCorrupt(
                f"{folder / name} ({entry.num_bytes} B) has SHA-256 {found}, the manifest says {entry.sha256}", _RESTORE
            )
    return manifest


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError as error:
        raise ModelFileMissing(f"{path} ({entry.num_bytes} B) is missing", _RESTORE) from error
    if found != entry.num_bytes:
        raise ModelFileWrongSize(f"{path} has {found} B, the manifest says {entry.num_bytes} B", _RESTORE)


class _Checker:
    """Hashes files; one thread hashes a block while the next is read."""

    def __init__(self, total_bytes: int, report: Report | None) -> None:
        self._buffers = (huge_buffer(_BLOCK_BYTES), huge_buffer(_BLOCK_BYTES))
        self._total, self._done, self._report = total_bytes, 0, report

    def sha256(self, path: Path, name: str) -> str:
        digest: Any = hashlib.sha256()
        with UncachedFile(path) as file, ThreadPoolExecutor(1) as hasher:
            last = hasher.submit(digest.update, b"")
            for number, offset in enumerate(range(0, file.num_bytes, _BLOCK_BYTES)):
                count = min(_BLOCK_BYTES, file.num_bytes - offset)
                view = self._buffers[number % 2][: padded(count)]
                file.read_into(view, offset)
                last.result()  # of the block before: its buffer is the next to be read into
                last = hasher.submit(digest.update, view[:count])
                self._done += count
                if self._report is not None:
                    self._report(Progress(self._done, self._total, name))
            last.result()
        return str(digest.hexdigest())
