"""Snapshots of sessions in a folder, one file each, that outlive the process.

Owns the files and their index in memory. A file is written beside its name, synced, then renamed; what a crash left is
swept away at opening. Refuses to know what a snapshot means: it is bytes, by the engine's snapshot_stream.

    NAME.snapshot    the stream
    NAME.json        whose it is, after how many tokens, of which ones; written last, so a file without it is none
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamoe_engine import snapshot_stream
from streamoe_engine.errors import SnapshotUnusable
from streamoe_engine.state_snapshot import StateSnapshot

from .errors import ShelfFull
from .ports import ShelfEntry
from .shelf import KEPT_PER_SESSION

DEFAULT_MOST_BYTES = 4 << 30
_CHUNK_BYTES = 1 << 20


class FolderShelf:
    """The snapshots of one node. save and load come from the compute thread, store and chunks from others."""

    def __init__(self, folder: Path, most_snapshot_bytes: int, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        """most_snapshot_bytes: what the plan has room for when one is loaded. Raises ShelfFull when the folder cannot
        be written.
        """
        self._folder, self._most_snapshot_bytes, self._most_bytes = folder, most_snapshot_bytes, most_bytes
        self._lock = threading.Lock()
        self._known: dict[str, list[ShelfEntry]] = {}  # by session, in the order of saving
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._sweep()
        except OSError as error:
            raise ShelfFull(f"{folder} cannot be used: {error.strerror}", "give another with --snapshots") from error

    def save(self, session: str, position: int, prefix_hash: bytes, snapshot: StateSnapshot) -> ShelfEntry:
        """Keep a snapshot; the oldest of the session, and of all, make room. Raises ShelfFull."""
        return self.store(session, position, prefix_hash, snapshot_stream.to_chunks(snapshot))

    def store(
        self, session: str, position: int, prefix_hash: bytes, chunks: Iterable[bytes | memoryview]
    ) -> ShelfEntry:
        """Keep the bytes of a snapshot. Raises ShelfFull; what `chunks` raises leaves nothing behind."""
        name = hashlib.sha256(f"{session}\0{position}\0{prefix_hash.hex()}".encode()).hexdigest()[:24]
        fresh = self._folder / f"{name}.{threading.get_ident()}.new"
        try:
            num_bytes = self._write(fresh, chunks)
            entry = ShelfEntry(name, session, position, prefix_hash, num_bytes)
            os.replace(fresh, self._path(name))
            self._write_index(entry)
        except OSError as error:
            raise ShelfFull(
                f"a snapshot cannot be written to {self._folder}: {error.strerror}", "free some disk space there"
            ) from error
        finally:
            fresh.unlink(missing_ok=True)
        with self._lock:
            mine = [known for known in self._known.get(session, []) if known.snapshot_id != name]
            self._known[session] = [*mine, entry]
            for old in self._known[session][:-KEPT_PER_SESSION]:
                self._remove(old)
        return entry

    def entries(self, session: str) -> tuple[ShelfEntry, ...]:
        """The session's snapshots, lowest position first."""
        with self._lock:
            return tuple(sorted(self._known.get(session, []), key=lambda entry: entry.position))

    def all_entries(self) -> tuple[ShelfEntry, ...]:
        """Every session's snapshots."""
        with self._lock:
            return tuple(entry for entries in self._known.values() for entry in entries)

    def load(self, entry: ShelfEntry) -> StateSnapshot:
        """The snapshot. Raises SnapshotUnusable and SnapshotMismatch."""
        return snapshot_stream.from_chunks(self.chunks(entry), self._most_snapshot_bytes)

    def chunks(self, entry: ShelfEntry, offset: int = 0) -> Iterator[bytes]:
        """The snapshot's bytes from an offset on. Raises SnapshotUnusable."""
        try:
            with self._path(entry.snapshot_id).open("rb") as file:
                file.seek(offset)
                while chunk := file.read(_CHUNK_BYTES):
                    _drop_cache(file.fileno())
                    yield chunk
        except OSError as error:
            raise SnapshotUnusable(
                f"the snapshot {entry.snapshot_id} cannot be read: {error.strerror}", "the tokens can be run again"
            ) from error

    def discard(self, entry: ShelfEntry) -> None:
        """Forget one snapshot."""
        with self._lock:
            self._remove(entry)

    def drop(self, session: str) -> None:
        """Forget the session's snapshots."""
        with self._lock:
            for entry in list(self._known.get(session, [])):
                self._remove(entry)

    def _write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> int:
        num_bytes = 0
        with path.open("wb") as file:
            for chunk in chunks:
                num_bytes += len(chunk)
                self._make_room(num_bytes)
                file.write(chunk)
                if num_bytes % (8 * _CHUNK_BYTES) < len(chunk):
                    self._flush(file.fileno())
            file.flush()
            self._flush(file.fileno())
        return num_bytes

    def _flush(self, descriptor: int) -> None:
        os.fsync(descriptor)
        _drop_cache(descriptor)

    def _make_room(self, num_bytes: int) -> None:
        if num_bytes > self._most_bytes:
            raise ShelfFull(
                f"a snapshot of more than {self._most_bytes} B does not fit the shelf", "give it more: --snapshot-bytes"
            )
        with self._lock:
            kept = [entry for entries in self._known.values() for entry in entries]
            total = sum(entry.num_bytes for entry in kept)
            while total + num_bytes > self._most_bytes:
                total -= kept[0].num_bytes
                self._remove(kept.pop(0))

    def _write_index(self, entry: ShelfEntry) -> None:
        fresh = self._folder / f"{entry.snapshot_id}.{threading.get_ident()}.index.new"
        facts = {
            "session": entry.session,
            "position": entry.position,
            "prefix_hash": entry.prefix_hash.hex(),
            "num_bytes": entry.num_bytes,
        }
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._index(entry.snapshot_id))
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # a rename is on the disk when its folder is
        finally:
            os.close(folder)

    def _remove(self, entry: ShelfEntry) -> None:
        self._index(entry.snapshot_id).unlink(missing_ok=True)
        self._path(entry.snapshot_id).unlink(missing_ok=True)
        left = [known for known in self._known.get(entry.session, []) if known.snapshot_id != entry.snapshot_id]
        if left:
            self._known[entry.session] = left
        else:
            self._known.pop(entry.session, None)

    def _sweep(self) -> None:
        """Read the index; remove what a crash left half done."""
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
            entry = _entry(path)
            if entry is not None and _size(self._path(entry.snapshot_id)) == entry.num_bytes:
                self._known.setdefault(entry.session, []).append(entry)
        names = {entry.snapshot_id for entries in self._known.values() for entry in entries}
        for path in self._folder.iterdir():
            name, _, kind = path.name.partition(".")
            if kind.endswith("new") or (kind in ("snapshot", "json") and name not in names):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.snapshot"

    def _index(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _entry(path: Path) -> ShelfEntry | None:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return ShelfEntry(
            path.stem,
            str(facts["session"]),
            int(facts["position"]),
            bytes.fromhex(facts["prefix_hash"]),
            int(facts["num_bytes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _drop_cache(descriptor: int) -> None:
    # The page cache of what was written or read once would stay charged to this process's control group.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
