"""The bytes of a snapshot, as a stream of chunks: for a file, or another machine.

Owns the format and its checks. Refuses to know what the arrays mean (state_snapshot), and where chunks go.

    "STMSNAP1"                 8 bytes
    header length              uint32, little-endian
    header                     JSON: position, kv, ..., layers; arrays: [layer, name, dtype, shape], in order
    arrays                     raw, C order, little-endian, one after the other
    SHA-256                    32 bytes, of everything before
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final, get_args

import numpy as np

from .errors import SnapshotMismatch, SnapshotUnusable
from .kv.formats import KV_ELEMENT_BYTES
from .plan_scratch import COMPUTE_BYTES, Backend
from .state_snapshot import Arrays, StateSnapshot

MAGIC: Final = b"STMSNAP1"
CHUNK_BYTES: Final = 1 << 20
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES: Final = 32
# Some 40 layers of 3 arrays, 80 B each, are 10 KiB; more than this is no header of ours.
_MOST_HEADER_BYTES: Final = 1 << 22
_MOST_DIMENSIONS: Final = 4
_DTYPES: Final = {"float32": "<f4", "float16": "<f2", "uint16": "<u2", "int64": "<i8"}
_TAKE_AGAIN: Final = "take the snapshot again, or run the tokens again instead"


def to_chunks(snapshot: StateSnapshot, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """The snapshot's bytes, at most chunk_bytes at a time; arrays are not copied, so they must not change meanwhile."""
    digest = hashlib.sha256()
    for piece in _pieces(snapshot):
        for start in range(0, len(piece), chunk_bytes):
            chunk = piece[start : start + chunk_bytes]
            digest.update(chunk)
            yield chunk
    yield memoryview(digest.digest())


def stream_bytes(snapshot: StateSnapshot) -> int:
    """How many bytes to_chunks gives in all."""
    return sum(len(piece) for piece in _pieces(snapshot)) + _DIGEST_BYTES


def from_chunks(chunks: Iterable[bytes | memoryview], most_bytes: int) -> StateSnapshot:
    """The snapshot that to_chunks made, however it was cut since.

    most_bytes: what the caller has planned for its arrays; a larger one is refused before memory is taken.
    Raises SnapshotUnusable for bytes that are not a whole snapshot, SnapshotMismatch for one over most_bytes. Whether
    it fits a model is state_snapshot.check_arrays' to say.
    """
    source = _Source(chunks)
    magic = source.take(len(MAGIC), "its first bytes")
    if magic != MAGIC:
        raise SnapshotUnusable("these bytes are no snapshot, or one of another format", _TAKE_AGAIN)
    (length,) = _LENGTH.unpack(source.take(_LENGTH.size, "its header's length"))
    if length > _MOST_HEADER_BYTES:
        raise SnapshotUnusable(f"the snapshot's header says it has {length} B", _TAKE_AGAIN)
    header = _parsed(source.take(length, "its header"))
    needed = sum(entry.num_bytes for entry in header.entries)
    if needed > most_bytes:
        raise SnapshotMismatch(
            f"the snapshot has {needed} B, there is room for {most_bytes} B", "plan more for snapshots"
        )
    layers: dict[int, Arrays] = {layer: {} for layer in header.layers}
    for entry in header.entries:
        array = np.empty(entry.shape, _DTYPES[entry.dtype])
        source.fill(array.reshape(-1).view(np.uint8).data, f"layer {entry.layer}")
        layers[entry.layer][entry.name] = array
    source.finish()
    return StateSnapshot(layers=layers, **header.facts)


@dataclass(frozen=True, slots=True)
class _Entry:
    layer: int
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize


@dataclass(frozen=True, slots=True)
class _Header:
    facts: dict[str, Any]
    layers: list[int]
    entries: list[_Entry]


_FACTS: Final = {"position": int, "kv": str, "compute_dtype": str, "backend": str, "family": str, "fingerprint": str}
_KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "kv": tuple(KV_ELEMENT_BYTES),
    "compute_dtype": tuple(COMPUTE_BYTES),
    "backend": get_args(Backend),
}


def _pieces(snapshot: StateSnapshot) -> Iterator[memoryview]:
    """Everything but the digest."""
    arrays = [(layer, name, array) for layer, named in snapshot.layers.items() for name, array in sorted(named.items())]
    header = json.dumps(
        {
            **{name: getattr(snapshot, name) for name in _FACTS},
            "layers": list(snapshot.layers),
            "arrays": [[layer, name, array.dtype.name, array.shape] for layer, name, array in arrays],
        }
    ).encode()
    yield memoryview(MAGIC + _LENGTH.pack(len(header)) + header)
    for *_, array in arrays:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _parsed(text: bytes) -> _Header:
    try:
        raw = json.loads(text)
        facts = {name: raw[name] for name in _FACTS}
        layers = [_whole(layer) for layer in raw["layers"]]
        entries = [_Entry(_whole(a), n, d, tuple(map(_whole, shape))) for a, n, d, shape in raw["arrays"]]
        if any(type(facts[name]) is not kind for name, kind in _FACTS.items()) or facts["position"] < 0:
            raise ValueError("a fact is of another kind")
        if any(facts[name] not in known for name, known in _KNOWN.items()):
            raise ValueError("a format is unknown")
        if len(set(layers)) < len(layers) or len({(e.layer, e.name) for e in entries}) < len(entries):
            raise ValueError("something is there twice")
        if any(len(e.shape) > _MOST_DIMENSIONS or 0 in e.shape for e in entries):
            raise ValueError("an array is empty or has too many dimensions")
        if any(e.layer not in layers or type(e.name) is not str or e.dtype not in _DTYPES for e in entries):
            raise ValueError("an array has no layer, name or known type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotUnusable(f"the snapshot's header cannot be read: {error!r}", _TAKE_AGAIN) from error
    return _Header(facts, layers, entries)


def _whole(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no count")
    return number


class _Source:
    """Chunks as one run of bytes, hashed as they pass."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks, self._rest = iter(chunks), memoryview(b"")
        self._digest = hashlib.sha256()

    def take(self, count: int, what: str) -> bytes:
        data = bytearray(count)
        self.fill(memoryview(data), what)
        return bytes(data)

    def fill(self, view: memoryview, what: str) -> None:
        self._copy(view, what)
        self._digest.update(view)

    def finish(self) -> None:
        """Check the digest, and that nothing follows it."""
        expected, found = self._digest.digest(), bytearray(_DIGEST_BYTES)
        self._copy(memoryview(found), "its checksum")
        if bytes(found) != expected:
            raise SnapshotUnusable("the snapshot's SHA-256 is not that of its bytes", _TAKE_AGAIN)
        if len(self._rest) or any(len(chunk) for chunk in self._chunks):
            raise SnapshotUnusable("there are bytes after the snapshot's end", _TAKE_AGAIN)

    def _copy(self, view: memoryview, what: str) -> None:
        done = 0
        while done < len(view):
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise SnapshotUnusable(f"the snapshot ends within {what}", _TAKE_AGAIN)
                self._rest = memoryview(chunk)
                continue
            count = min(len(self._rest), len(view) - done)
            view[done : done + count] = self._rest[:count]
            self._rest, done = self._rest[count:], done + count
