"""Snapshots kept in memory: the simulation's shelf, and one for tests."""

from __future__ import annotations

from typing import Any

from streamoe_engine.errors import SnapshotUnusable

from .ports import ShelfEntry

KEPT_PER_SESSION = 2


class MemoryShelf:
    """Keeps the last two snapshots of each session."""

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[ShelfEntry, Any]]] = {}
        self._count = 0

    def save(self, session: str, position: int, prefix_hash: bytes, snapshot: Any) -> ShelfEntry:
        """Keep a snapshot."""
        self._count += 1
        entry = ShelfEntry(f"snapshot-{self._count}", session, position, prefix_hash, 0)
        kept = [pair for pair in self._kept.get(session, []) if pair[0].position != position]
        # In the order of saving: after a conversation was begun anew, the old and longer snapshots go first.
        self._kept[session] = [*kept, (entry, snapshot)][-KEPT_PER_SESSION:]
        return entry

    def entries(self, session: str) -> tuple[ShelfEntry, ...]:
        """The session's snapshots, lowest position first."""
        return tuple(sorted((pair[0] for pair in self._kept.get(session, [])), key=lambda entry: entry.position))

    def load(self, entry: ShelfEntry) -> Any:
        """The snapshot. Raises SnapshotUnusable when it has gone."""
        for kept, snapshot in self._kept.get(entry.session, []):
            if kept == entry:
                return snapshot
        raise SnapshotUnusable(f"the snapshot {entry.snapshot_id} has gone", "the tokens can be run again")

    def discard(self, entry: ShelfEntry) -> None:
        """Forget one snapshot."""
        kept = self._kept.get(entry.session, [])
        self._kept[entry.session] = [pair for pair in kept if pair[0] != entry]

    def drop(self, session: str) -> None:
        """Forget the session's snapshots."""
        self._kept.pop(session, None)

    def num_kept(self) -> int:
        """Snapshots on the shelf."""
        return sum(len(kept) for kept in self._kept.values())
