"""A conversation in a file: what was said, and the state it left in every layer, so that it can go on elsewhere.

Owns the file's format, its whole-or-not-at-all writing and its check. States are addressed by layer: written over two
bands, they are read for one, three or any others. Refuses to know nodes, and what a state means.

    "STMTALK1"       8 bytes
    header length    uint32, little-endian
    header           JSON: schema, fingerprint, ..., tokens, talk; parts: [first layer, last layer, bytes], in order
    parts            a band's state each, by streamoe_engine.snapshot_stream
    SHA-256          32 bytes, of everything before
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from streamoe_engine.sizes import format_size
from streamoe_engine.snapshot_stream import CHUNK_BYTES, from_chunks, stream_bytes, to_chunks
from streamoe_engine.state_snapshot import StateSnapshot, merged
from streamoe_node.errors import SnapshotUnusable
from streamoe_proto.messages import EMPTY_PREFIX, prefix_hash

_MAGIC, _LENGTH, _DIGEST_BYTES, _SCHEMA = b"STMTALK1", struct.Struct("<I"), 32, 1
_MOST_HEADER_BYTES = 64 * 1024**2
_NEXT = "give a file that `streamoe-coord snapshot save` or /snapshot wrote"


@dataclass(frozen=True, slots=True)
class Part:
    """A band's state in the file: its layers, inclusive, and its bytes."""

    first_layer: int
    last_layer: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Talk:
    """The conversation. fingerprint: the model's. tokens: all that the state has run, (position,) of them. talk: the
    text side, as ChatSession keeps it."""

    fingerprint: str
    family: str
    num_layers: int
    tokens: tuple[int, ...]
    talk: dict[str, Any]

    @property
    def position(self) -> int:
        """Tokens run."""
        return len(self.tokens)

    @property
    def prefix_hash(self) -> bytes:
        """The tokens' hash, as nodes know it."""
        return prefix_hash(EMPTY_PREFIX, self.tokens)


def write_talk(path: Path, talk: Talk, parts: Sequence[tuple[Part, Callable[[], Iterable[bytes | memoryview]]]]) -> int:
    """Write the file, replacing an older one only when this is whole and on the disk; returns its size in bytes.

    parts: what each band has, in layer order, and how to get its bytes. Raises SnapshotUnusable when the disk refuses
    or a band gives another number of bytes than it said; what the parts raise leaves the older file as it was.
    """
    _check_tiling([part for part, _ in parts], talk.num_layers)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            num_bytes = _write(file, talk, parts)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SnapshotUnusable(
            f"{path} cannot be written: {error.strerror}", "give another file, or free space"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
    return num_bytes


class SavedTalk:
    """A file that was checked, opened to read states from it. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Reads the whole file once. Raises SnapshotUnusable for one that is no talk, cut short, or damaged."""
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise SnapshotUnusable(f"{path} cannot be read: {error.strerror}", _NEXT) from error
        try:
            self.talk, self._parts = self._load()
        except BaseException:
            self._file.close()
            raise

    @property
    def parts(self) -> tuple[Part, ...]:
        """Which bands it was written over."""
        return tuple(part for part, _ in self._parts)

    def state(self, first: int, last: int) -> StateSnapshot:
        """The state of layers first..last, in memory. Raises SnapshotUnusable and SnapshotMismatch."""
        return merged(
            from_chunks(self._raw(part, offset), part.num_bytes).cut(
                max(first, part.first_layer), min(last, part.last_layer)
            )
            for part, offset in self._parts
            if part.first_layer <= last and first <= part.last_layer
        )

    def band_stream(self, first: int, last: int) -> tuple[int, Iterator[memoryview | bytes]]:
        """The state of layers first..last as snapshot_stream: how many bytes, and the bytes. Goes through memory
        unless a part is the very band. Raises as state."""
        for part, offset in self._parts:
            if (part.first_layer, part.last_layer) == (first, last):
                return part.num_bytes, self._raw(part, offset)
        snapshot = self.state(first, last)
        return stream_bytes(snapshot), to_chunks(snapshot)

    def __enter__(self) -> SavedTalk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _raw(self, part: Part, offset: int) -> Iterator[bytes]:
        left = part.num_bytes
        self._file.seek(offset)
        while left:
            place = self._file.tell()
            chunk = self._file.read(min(left, CHUNK_BYTES))
            if not chunk:
                raise SnapshotUnusable(f"{self.path} has become shorter", _NEXT)
            left -= len(chunk)
            yield chunk
            self._file.seek(place + len(chunk))  # another part may be read meanwhile

    def _load(self) -> tuple[Talk, list[tuple[Part, int]]]:
        size = os.fstat(self._file.fileno()).st_size
        head = self._file.read(len(_MAGIC) + _LENGTH.size)
        if len(head) < len(_MAGIC) + _LENGTH.size or not head.startswith(_MAGIC):
            raise SnapshotUnusable(f"{self.path} is no saved conversation", _NEXT)
        (length,) = _LENGTH.unpack(head[len(_MAGIC) :])
        if length > min(size, _MOST_HEADER_BYTES):
            raise SnapshotUnusable(f"{self.path} is cut short, or damaged", _NEXT)
        talk, parts = _parsed(self._file.read(length), self.path)
        begin = len(head) + length
        expected = begin + sum(part.num_bytes for part in parts) + _DIGEST_BYTES
        if size != expected:
            raise SnapshotUnusable(f"{self.path} has {size} B, its header says {expected} B", _NEXT)
        self._check_digest(size)
        placed = []
        for part in parts:
            placed.append((part, begin))
            begin += part.num_bytes
        return talk, placed

    def _check_digest(self, size: int) -> None:
        digest, left = hashlib.sha256(), size - _DIGEST_BYTES
        self._file.seek(0)
        while left and (chunk := self._file.read(min(left, CHUNK_BYTES))):
            digest.update(chunk)
            left -= len(chunk)
        if self._file.read() != digest.digest():
            raise SnapshotUnusable(f"{self.path} is damaged: its SHA-256 is not that of its bytes", _NEXT)


def _write(file: BinaryIO, talk: Talk, parts: Sequence[tuple[Part, Callable[[], Iterable[bytes | memoryview]]]]) -> int:
    header = json.dumps(
        {
            "schema": _SCHEMA,
            "fingerprint": talk.fingerprint,
            "family": talk.family,
            "num_layers": talk.num_layers,
            "tokens": talk.tokens,
            "talk": talk.talk,
            "parts": [[part.first_layer, part.last_layer, part.num_bytes] for part, _ in parts],
        }
    ).encode()
    digest: Any = hashlib.sha256()

    def put(data: bytes | memoryview) -> None:
        digest.update(data)
        file.write(data)

    put(_MAGIC + _LENGTH.pack(len(header)) + header)
    for part, chunks in parts:
        written = 0
        for chunk in chunks():
            put(chunk)
            written += len(chunk)
        if written != part.num_bytes:
            raise SnapshotUnusable(
                f"layers {part.first_layer}-{part.last_layer} gave {format_size(written)} of "
                f"{format_size(part.num_bytes)}",
                "save again",
            )
    file.write(digest.digest())
    return file.tell()


def _parsed(text: bytes, path: Path) -> tuple[Talk, list[Part]]:
    try:
        raw = json.loads(text)
        if raw["schema"] != _SCHEMA:
            raise SnapshotUnusable(f"{path} has format {raw['schema']}, this program reads {_SCHEMA}", _NEXT)
        parts = [Part(int(first), int(last), int(num_bytes)) for first, last, num_bytes in raw["parts"]]
        talk = Talk(
            str(raw["fingerprint"]),
            str(raw["family"]),
            int(raw["num_layers"]),
            tuple(int(token) for token in raw["tokens"]),
            dict(raw["talk"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotUnusable(f"{path} has a header that cannot be read", _NEXT) from error
    if any(part.num_bytes < 0 for part in parts):
        raise SnapshotUnusable(f"{path} has a header that cannot be", _NEXT)
    _check_tiling(parts, talk.num_layers)
    return talk, parts


def _check_tiling(parts: Sequence[Part], num_layers: int) -> None:
    layers = [layer for part in parts for layer in range(part.first_layer, part.last_layer + 1)]
    if layers != list(range(num_layers)):
        raise SnapshotUnusable(f"the parts do not cover layers 0-{num_layers - 1} once", "save again")
