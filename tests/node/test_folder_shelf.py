"""Snapshots in a folder: they outlive the process, whole or not at all, within a size."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine.errors import SnapshotUnusable
from streamoe_engine.state_snapshot import StateSnapshot
from streamoe_node.errors import ShelfFull
from streamoe_node.folder_shelf import FolderShelf

HASH = b"12345678"


def snapshot(position: int, fill: float = 1.0) -> StateSnapshot:
    arrays = {"keys": np.full((2, position, 4), fill, np.float32), "values": np.ones((2, position, 4), np.float32)}
    return StateSnapshot(position, {3: arrays}, "f32", "float32", "kernels", "toy", "f")


def shelf_in(folder: Path, most_bytes: int = 1 << 20) -> FolderShelf:
    return FolderShelf(folder, 1 << 20, most_bytes)


def test_snapshot_comes_back_after_a_restart(tmp_path: Path) -> None:
    kept = shelf_in(tmp_path).save("chat/../../x", 5, HASH, snapshot(5, 2.5))
    again = shelf_in(tmp_path)
    (entry,) = again.entries("chat/../../x")
    assert entry == kept and entry.position == 5 and entry.prefix_hash == HASH
    assert np.array_equal(again.load(entry).layers[3]["keys"], snapshot(5, 2.5).layers[3]["keys"])
    assert b"".join(again.chunks(entry, 10)) == b"".join(again.chunks(entry))[10:]
    assert {path.parent for path in tmp_path.rglob("*.snapshot")} == {tmp_path}


def test_two_of_a_session_are_kept_and_drop_forgets_all(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    for position in (9, 3, 6):
        shelf.save("one", position, HASH, snapshot(position))
    shelf.save("two", 1, HASH, snapshot(1))
    assert [entry.position for entry in shelf.entries("one")] == [3, 6]
    shelf.drop("one")
    assert shelf.entries("one") == () and len(shelf.all_entries()) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_oldest_of_all_makes_room(tmp_path: Path) -> None:
    one = shelf_in(tmp_path / "a").save("s", 5, HASH, snapshot(5)).num_bytes
    shelf = shelf_in(tmp_path / "b", most_bytes=one * 5 // 2)
    for name in ("a", "b", "c"):
        shelf.save(name, 5, HASH, snapshot(5))
    assert [entry.session for entry in shelf.all_entries()] == ["b", "c"]
    with pytest.raises(ShelfFull, match="does not fit"):
        shelf.save("large", 200, HASH, snapshot(200))


def test_what_a_crash_left_is_swept_away(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    good, cut, bare = (shelf.save(name, 5, HASH, snapshot(5)).snapshot_id for name in "abc")
    (tmp_path / f"{cut}.snapshot").write_bytes(b"half")
    (tmp_path / f"{bare}.json").unlink()
    (tmp_path / "x.1.new").write_bytes(b"half")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "notes.txt").write_text("the user's own")
    again = shelf_in(tmp_path)
    assert [entry.session for entry in again.all_entries()] == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{good}.json", f"{good}.snapshot", "notes.txt"])


def test_altered_or_missing_file_is_unusable(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    entry = shelf.save("s", 5, HASH, snapshot(5))
    path = tmp_path / f"{entry.snapshot_id}.snapshot"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotUnusable):
        shelf.load(entry)
    path.unlink()
    with pytest.raises(SnapshotUnusable, match="cannot be read"):
        shelf.load(entry)
    shelf.discard(entry)
    assert shelf.entries("s") == ()


def test_full_disk_and_a_stream_that_breaks_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = shelf_in(tmp_path)

    def breaks() -> Iterator[bytes]:
        yield b"some"
        raise RuntimeError("the peer went")

    with pytest.raises(RuntimeError):
        shelf.store("s", 5, HASH, breaks())

    def no_space(self: FolderShelf, descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FolderShelf, "_flush", no_space)
    with pytest.raises(ShelfFull, match="No space left"):
        shelf.save("s", 5, HASH, snapshot(5))
    assert list(tmp_path.iterdir()) == [] and shelf.entries("s") == ()


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ShelfFull, match="cannot be used"):
        shelf_in(tmp_path / "file" / "below")
