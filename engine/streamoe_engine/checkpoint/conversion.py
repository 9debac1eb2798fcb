"""A checkpoint converted to a model folder: read once, in order, through bounded buffers.

Owns the order of things: outline, check the room on the disk, write what an earlier run has not, then the manifest,
then the rename. Refuses to know formats and layouts. Memory stays below 0.3 GiB whatever the model's size.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import ConversionFailed
from ..freed_memory import give_freed_memory_back
from ..manifest import FORMAT_VERSION, FileEntry, Manifest, manifest_to_json
from ..sizes import MIB, format_size
from ..uncached_write import free_bytes
from .options import ConvertOptions, Progress, Report
from .outline import Outline, outline_folder
from .partial_folder import PartialFolder, refuse_existing
from .produce import Producer
from .sink import Sink, WrittenFile
from .source import read_source
from .source_files import SourceFiles, SourceReader

DISK_MARGIN_BYTES = 64 * MIB
# What is made of a source changes with this; a partial folder of another number is started over.
_LAYOUT = 1


def convert(
    source: Path, target: Path, options: ConvertOptions | None = None, report: Report | None = None
) -> Manifest:
    """Convert the checkpoint in `source` to a model folder at `target`, which must not exist; returns its manifest.

    Works in <target>.partial; after an interruption, the same call goes on after the last finished file. report is
    called at least every 16 MiB, from the calling thread.
    Raises CheckpointIncomplete, CheckpointMismatch, ModelNotSupported, ConversionFailed and UsageError.
    """
    options = options or ConvertOptions()
    refuse_existing(target)
    found = read_source(source)
    fingerprint = f"{found.fingerprint} {options} {FORMAT_VERSION}.{_LAYOUT}"
    with SourceFiles(found.files) as files:
        reader = SourceReader(files)
        outline = outline_folder(found, options, reader)
        give_freed_memory_back()
        with PartialFolder(target, fingerprint) as folder:
            _require_room(outline, folder)
            _write_files(outline, folder, reader, report)
            manifest = replace(
                outline.manifest, files={file.name: folder.finished[file.name] for file in outline.files}
            )
            folder.become_target(manifest_to_json(manifest))
    return manifest


def _require_room(outline: Outline, folder: PartialFolder) -> None:
    needed = outline.num_bytes - sum(entry.num_bytes for entry in folder.finished.values()) + DISK_MARGIN_BYTES
    free = free_bytes(folder.path)
    if needed <= free:
        return
    if not folder.finished:
        folder.remove()
    raise ConversionFailed(
        f"{folder.target} needs {format_size(needed)} ({format_size(DISK_MARGIN_BYTES)} of it to spare), "
        f"{format_size(free)} are free at {folder.target.parent}",
        f"free {format_size(needed - free)}, or give a target folder on another disk",
    )


def _write_files(outline: Outline, folder: PartialFolder, reader: SourceReader, report: Report | None) -> None:
    progress = _Progress(outline.num_bytes, report)

    def on_file(file: WrittenFile) -> None:
        folder.record(file.name, FileEntry(file.num_bytes, file.sha256))

    with Sink(folder.path, progress.add, on_file) as sink:
        producer = Producer(reader, sink)
        for file in outline.files:
            if file.name in folder.finished:
                progress.add(file.num_bytes, file.name)
                continue
            sink.open(file.name, file.num_bytes)
            producer.write(file.segments())
            sink.close()
            give_freed_memory_back()
        sink.finish()
    for file in outline.files:
        assert folder.finished[file.name].num_bytes == file.num_bytes, file.name


class _Progress:
    """Counts bytes and tells the caller."""

    def __init__(self, total_bytes: int, report: Report | None) -> None:
        self._total, self._report, self._done = total_bytes, report, 0

    def add(self, num_bytes: int, part: str) -> None:
        self._done += num_bytes
        if self._report is not None:
            self._report(Progress(self._done, self._total, part))
