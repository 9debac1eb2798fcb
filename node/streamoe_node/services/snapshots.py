"""SnapshotService: snapshots from and to the node's shelf, and the files of its model folder, in chunks.

Owns the streams' checks: offsets follow one another, each chunk has its CRC. What a snapshot means is checked when it
is loaded. Only files that the manifest names are given, by their names in it. Refuses to know sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import google_crc32c
import grpc

from streamoe_engine.errors import StreamoeError
from streamoe_engine.fingerprint import band_files, text_files
from streamoe_engine.manifest import MANIFEST_FILE, Manifest
from streamoe_proto.channel_options import CHUNK_BYTES
from streamoe_proto.v1 import snapshot_pb2, snapshot_pb2_grpc
from streamoe_proto.wire import HASH_BYTES

from ..folder_shelf import FolderShelf
from ..ports import ShelfEntry


class SnapshotService(snapshot_pb2_grpc.SnapshotServiceServicer):
    """Serves one node's shelf and its model folder's files of layers first..last."""

    def __init__(
        self, shelf: FolderShelf, folder: Path, manifest: Manifest, fingerprint: str, layers: tuple[int, int]
    ) -> None:
        self._shelf, self._folder, self._manifest, self._fingerprint = shelf, folder, manifest, fingerprint
        self._layers = layers

    def List(  # noqa: N802 (gRPC's name)
        self, request: snapshot_pb2.ListRequest, context: grpc.ServicerContext
    ) -> snapshot_pb2.ListResponse:
        """The snapshots on the shelf."""
        entries = self._shelf.entries(request.session) if request.session else self._shelf.all_entries()
        return snapshot_pb2.ListResponse(snapshots=[self._header(entry) for entry in entries])

    def Fetch(  # noqa: N802
        self, request: snapshot_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> Iterator[snapshot_pb2.FetchResponse]:
        """A snapshot's bytes."""
        entry = next((e for e in self._shelf.all_entries() if e.snapshot_id == request.snapshot_id), None)
        if entry is None:
            _abort(context, grpc.StatusCode.NOT_FOUND, f"there is no snapshot {request.snapshot_id!r} here")
        yield snapshot_pb2.FetchResponse(header=self._header(entry))
        offset = request.offset
        try:
            for data in self._shelf.chunks(entry, offset):
                yield snapshot_pb2.FetchResponse(chunk=_chunk(offset, data))
                offset += len(data)
        except StreamoeError as error:
            _abort(context, grpc.StatusCode.DATA_LOSS, error.message)

    def Store(  # noqa: N802
        self, request_iterator: Iterator[snapshot_pb2.StoreRequest], context: grpc.ServicerContext
    ) -> snapshot_pb2.StoreResponse:
        """Take a snapshot; what is not whole leaves nothing."""
        first = next(request_iterator, None)
        if first is None or not first.header.session or len(first.header.prefix_hash) != HASH_BYTES:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "a snapshot begins with its header")
        header = first.header
        if header.fingerprint != self._fingerprint:
            _abort(context, grpc.StatusCode.FAILED_PRECONDITION, "the snapshot is of another model")
        try:
            entry = self._shelf.store(
                header.session,
                header.position,
                header.prefix_hash,
                _received(request_iterator, context, header.num_bytes),
            )
        except StreamoeError as error:
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        return snapshot_pb2.StoreResponse(header=self._header(entry))

    def ListFiles(  # noqa: N802
        self, request: snapshot_pb2.ListFilesRequest, context: grpc.ServicerContext
    ) -> snapshot_pb2.ListFilesResponse:
        """The files of the band, and those of the text; or every file of the manifest that is here."""
        manifest = self._manifest
        names = list(manifest.files) if request.all else band_files(manifest, *self._layers) + text_files(manifest)
        files = [
            snapshot_pb2.FileInfo(
                path=name, num_bytes=manifest.files[name].num_bytes, sha256=manifest.files[name].sha256
            )
            for name in names
            if (self._folder / name).is_file()
        ]
        return snapshot_pb2.ListFilesResponse(fingerprint=self._fingerprint, files=files)

    def FetchFile(  # noqa: N802
        self, request: snapshot_pb2.FetchFileRequest, context: grpc.ServicerContext
    ) -> Iterator[snapshot_pb2.FetchFileResponse]:
        """A file's bytes from an offset on."""
        if request.path not in self._manifest.files and request.path != MANIFEST_FILE:
            _abort(context, grpc.StatusCode.NOT_FOUND, f"the model has no file {request.path!r}")
        try:
            with (self._folder / request.path).open("rb", buffering=0) as file:
                offset = file.seek(request.offset)
                while data := file.read(CHUNK_BYTES):
                    if hasattr(os, "posix_fadvise"):
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    yield snapshot_pb2.FetchFileResponse(chunk=_chunk(offset, data))
                    offset += len(data)
        except OSError as error:
            _abort(context, grpc.StatusCode.DATA_LOSS, f"{request.path} cannot be read here: {error.strerror}")

    def _header(self, entry: ShelfEntry) -> snapshot_pb2.SnapshotHeader:
        return snapshot_pb2.SnapshotHeader(
            snapshot_id=entry.snapshot_id,
            session=entry.session,
            position=entry.position,
            prefix_hash=entry.prefix_hash,
            num_bytes=entry.num_bytes,
            fingerprint=self._fingerprint,
        )


def _received(
    requests: Iterator[snapshot_pb2.StoreRequest], context: grpc.ServicerContext, num_bytes: int
) -> Iterator[bytes]:
    offset = 0
    for request in requests:
        chunk = request.chunk
        if chunk.offset != offset or google_crc32c.value(chunk.data) != chunk.crc32c:
            _abort(context, grpc.StatusCode.DATA_LOSS, f"the chunk at {offset} B is out of order or damaged")
        offset += len(chunk.data)
        yield chunk.data
    if offset != num_bytes:
        _abort(context, grpc.StatusCode.DATA_LOSS, f"{offset} of {num_bytes} B came")


def _chunk(offset: int, data: bytes) -> snapshot_pb2.Chunk:
    return snapshot_pb2.Chunk(offset=offset, crc32c=google_crc32c.value(data), data=data)


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, sentence: str) -> NoReturn:
    context.abort(code, sentence)
    raise AssertionError("abort does not return")
