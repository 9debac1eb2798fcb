"""Copying a band's files from a peer that breaks off, lies, and damages what it sends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamoe_coordinator.cluster.band_pull import pull_band
from streamoe_coordinator.cluster.node_client import RemoteFile
from streamoe_engine.checkpoint.options import Progress
from streamoe_engine.errors import ConversionFailed, ModelFileCorrupt, ModelFolderError, UsageError
from streamoe_engine.fingerprint import band_files, fingerprint, text_files
from streamoe_engine.manifest import MANIFEST_FILE, manifest_to_json, read_manifest
from streamoe_node.errors import FingerprintMismatch, NodeUnreachable


class FolderPeer:
    """A peer that serves a folder; `break_after` bytes in all, the line breaks; `damage` changes a file's bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        self.told = fingerprint(self.manifest)
        self.has = set(self.manifest.files)
        self.break_after: int | None = None
        self.damage: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.manifest_text = (folder / MANIFEST_FILE).read_bytes()

    def files(self, *, everything: bool = False) -> tuple[str, list[RemoteFile]]:
        return self.told, [
            RemoteFile(n, e.num_bytes, e.sha256) for n, e in self.manifest.files.items() if n in self.has
        ]

    def read_file(self, name: str, offset: int = 0) -> Iterator[bytes]:
        data = self.manifest_text if name == MANIFEST_FILE else (self.folder / name).read_bytes()
        if self.damage.get(name, 0):
            self.damage[name] -= 1
            data = bytes([data[0] ^ 1]) + data[1:]
        for start in range(offset, len(data), 4096):
            piece = data[start : start + 4096]
            if self.break_after is not None:
                if self.break_after < len(piece):
                    raise NodeUnreachable("the line broke")
                self.break_after -= len(piece)
            self.sent[name] = self.sent.get(name, 0) + len(piece)
            yield piece


@pytest.fixture
def model(tiny_folder: Callable[..., tuple[Path, Path]]) -> Path:
    return tiny_folder("qwen3_5_moe")[1]


@pytest.fixture
def peer(model: Path) -> FolderPeer:
    return FolderPeer(model)


def present(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layers", [(0, 1), (1, 2), (3, 3), (0, 3)])
def test_only_the_bands_files(peer: FolderPeer, model: Path, tmp_path: Path, layers: tuple[int, int]) -> None:
    shown: list[Progress] = []
    pulled = pull_band(peer, tmp_path / "dst", layers, report=shown.append)
    wanted = {*band_files(peer.manifest, *layers), *text_files(peer.manifest)}
    assert present(tmp_path / "dst") == {*wanted, MANIFEST_FILE}
    for name in wanted:
        assert (tmp_path / "dst" / name).read_bytes() == (model / name).read_bytes()
    assert pulled.copied_bytes == sum(peer.manifest.files[name].num_bytes for name in wanted)
    assert shown[-1].done_bytes == shown[-1].total_bytes == pulled.copied_bytes
    assert not (tmp_path / "dst.partial").exists()
    assert set(peer.sent) == {*wanted, MANIFEST_FILE}


def test_a_line_that_breaks_is_resumed_to_the_byte(peer: FolderPeer, tmp_path: Path) -> None:
    total = sum(peer.manifest.files[n].num_bytes for n in band_files(peer.manifest, 0, 1))
    for done in range(0, total, total // 7):
        peer.break_after = total // 7
        with pytest.raises(NodeUnreachable):
            pull_band(peer, tmp_path / "dst", (0, 1))
        assert not (tmp_path / "dst").exists(), done
    peer.break_after = None
    pull_band(peer, tmp_path / "dst", (0, 1))
    del peer.sent[MANIFEST_FILE]
    assert all(count == peer.manifest.files[name].num_bytes for name, count in peer.sent.items())


def test_a_crash_before_the_last_rename_is_gone_on_from(peer: FolderPeer, tmp_path: Path) -> None:
    pull_band(peer, tmp_path / "dst", (0, 1))
    (tmp_path / "dst").rename(tmp_path / "dst.partial")
    assert pull_band(peer, tmp_path / "dst", (0, 1)).copied_bytes == 0
    assert (tmp_path / "dst" / MANIFEST_FILE).is_file() and not (tmp_path / "dst.partial").exists()


def test_more_layers_for_a_folder_that_has_some(peer: FolderPeer, tmp_path: Path) -> None:
    pull_band(peer, tmp_path / "dst", (0, 1))
    peer.sent.clear()
    pulled = pull_band(peer, tmp_path / "dst", (1, 3))
    assert set(peer.sent) == {MANIFEST_FILE, *band_files(peer.manifest, 2, 3)} - {"config.json"}
    assert pulled.copied_bytes == sum(c for n, c in peer.sent.items() if n != MANIFEST_FILE)
    peer.sent.clear()
    assert pull_band(peer, tmp_path / "dst", (0, 3)).copied_bytes == 0


def test_damage_is_found_and_one_more_try_is_made(peer: FolderPeer, tmp_path: Path) -> None:
    name = band_files(peer.manifest, 1, 1)[-1]
    peer.damage = {name: 1}
    pull_band(peer, tmp_path / "dst", (1, 1))
    peer.damage = {name: 99}
    with pytest.raises(ModelFileCorrupt, match=name):
        pull_band(peer, tmp_path / "other", (1, 1))
    assert not (tmp_path / "other").exists()


def test_a_peer_that_lies_about_its_model(peer: FolderPeer, tmp_path: Path) -> None:
    with pytest.raises(FingerprintMismatch, match="is wanted"):
        pull_band(peer, tmp_path / "dst", (0, 1), wanted="ffff")
    truth, peer.told = peer.told, "0" * 64
    with pytest.raises(FingerprintMismatch, match="it said 000000000000"):
        pull_band(peer, tmp_path / "dst", (0, 1))
    peer.told = truth
    for text in (b"", b"\xff\xff", b"{}", json.dumps({"format": "streamoe-model", "format_version": 1}).encode()):
        peer.manifest_text = text
        with pytest.raises(ModelFolderError):
            pull_band(peer, tmp_path / "dst", (0, 1))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "a\\b", ""])
def test_names_stay_in_the_folder(peer: FolderPeer, tmp_path: Path, name: str) -> None:
    files = {**peer.manifest.files, name: next(iter(peer.manifest.files.values()))}
    bad = replace(peer.manifest, files=files)
    peer.told, peer.manifest_text = fingerprint(bad), manifest_to_json(bad).encode()
    with pytest.raises(ModelFolderError, match="outside its folder"):
        pull_band(peer, tmp_path / "dst", (0, 1))


def test_what_cannot_be_had(peer: FolderPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.has -= {band_files(peer.manifest, 2, 2)[-1]}
    with pytest.raises(NodeUnreachable, match="lacks 1 of the"):
        pull_band(peer, tmp_path / "dst", (1, 2))
    with pytest.raises(UsageError, match="0-3"):
        pull_band(peer, tmp_path / "dst", (2, 4))
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ConversionFailed, match="has room for 10 B"):
        pull_band(peer, tmp_path / "dst", (0, 1))


def test_targets_that_are_something_else(
    peer: FolderPeer, tmp_path: Path, tiny_folder: Callable[..., tuple[Path, Path]]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_folder("qwen3_moe")[1], other)
    with pytest.raises(FingerprintMismatch, match="another model"):
        pull_band(peer, other, (0, 1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    with pytest.raises(UsageError, match="no model folder"):
        pull_band(peer, tmp_path / "full", (0, 1))
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "letter").touch()
    with pytest.raises(UsageError, match="not made by pull-band"):
        pull_band(peer, tmp_path / "new", (0, 1))
    peer.break_after = len(peer.manifest_text) + 5000
    with pytest.raises(NodeUnreachable):
        pull_band(peer, tmp_path / "begun", (0, 1))
    with pytest.raises(FingerprintMismatch, match="part of another"):
        pull_band(FolderPeer(tiny_folder("qwen3_moe")[1]), tmp_path / "begun", (0, 1))
