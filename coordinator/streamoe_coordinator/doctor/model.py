"""Whether a model folder is whole: its manifest, its files' sizes and, when asked, every byte.

Owns nothing of the format: the engine reads the manifest and the bytes. Refuses to know what the files are for.
"""

from __future__ import annotations

from pathlib import Path

from streamoe_engine.errors import StreamoeError
from streamoe_engine.manifest import FileEntry, Manifest, read_manifest
from streamoe_engine.sizes import format_size

from .check import Check, graded


def manifest_check(folder: Path) -> tuple[Check, Manifest | None]:
    """Whether the manifest can be read, and the manifest."""
    try:
        manifest = read_manifest(folder)
    except StreamoeError as error:
        return graded("model", "manifest", error.message, fail=error.next_step), None
    layers = f"{manifest.num_layers} layers, {len(manifest.experts)} of them with experts"
    return graded("model", "manifest", f"{manifest.family}, {layers}, at {folder}"), manifest


def sizes_check(folder: Path, manifest: Manifest) -> Check:
    """Every file the manifest names is there and has its size."""
    wrong = [text for name, entry in manifest.files.items() if (text := _wrong_size(folder / name, entry))]
    if wrong:
        measured = wrong[0] + (f", and {len(wrong) - 1} more files are not right" if wrong[1:] else "")
        return graded("model", "files", measured, fail="convert the checkpoint again, or restore the files")
    total = format_size(sum(entry.num_bytes for entry in manifest.files.values()))
    return graded("model", "files", f"{len(manifest.files)} files, {total}")


def hashes_check(folder: Path) -> Check:
    """Every file has the manifest's SHA-256. Reads the whole model, past the page cache."""
    from streamoe_engine.checkpoint import verify_folder

    try:
        manifest = verify_folder(folder)
    except StreamoeError as error:
        return graded("model", "hashes", error.message, fail=error.next_step)
    return graded("model", "hashes", f"{len(manifest.files)} files are as the manifest says, to the byte")


def _wrong_size(path: Path, entry: FileEntry) -> str:
    if not path.is_file():
        return f"{path} is missing"
    found = path.stat().st_size
    return "" if found == entry.num_bytes else f"{path} has {found} B, the manifest says {entry.num_bytes} B"
