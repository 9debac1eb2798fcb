"""A band's files copied from a node that has them: only those, resumed where it stopped, each checked before it counts.

Owns what is asked for and whether it is right. Names come from the manifest alone, and the manifest's fingerprint is
what the node said it is: nothing else that travels is trusted. Refuses to know gRPC, how a peer is found, and the
target's layout (pull_folder.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from streamoe_engine.checkpoint.options import Progress, Report
from streamoe_engine.errors import ModelFileCorrupt, ModelFolderError, UsageError
from streamoe_engine.fingerprint import band_files, fingerprint, text_files
from streamoe_engine.manifest import MANIFEST_FILE, FileEntry, Manifest, manifest_from_json
from streamoe_engine.store import CONFIG_FILE
from streamoe_node.errors import FingerprintMismatch, NodeUnreachable

from .node_client import RemoteFile
from .pull_folder import become, check_space, work_folder, write_failed

_MOST_MANIFEST_BYTES = 64 * 1024**2
_MOST_TRIES = 5


class FilePeer(Protocol):
    """A node's model folder, from afar."""

    def files(self, *, everything: bool = False) -> tuple[str, list[RemoteFile]]:
        """Fingerprint and files."""
        ...

    def read_file(self, name: str, offset: int = 0) -> Iterator[bytes]:
        """A file's bytes from offset on. Raises NodeUnreachable."""
        ...


@dataclass(frozen=True, slots=True)
class Pulled:
    """The folder's manifest, the files it now has for the band, and how many bytes travelled."""

    manifest: Manifest
    files: tuple[str, ...]
    copied_bytes: int


def pull_band(
    peer: FilePeer,
    target: Path,
    layers: tuple[int, int],
    *,
    wanted: str | None = None,
    report: Report = lambda _: None,
) -> Pulled:
    """Copy what layers first..last need, and the tokenizer where the peer has it.

    wanted: the model's fingerprint, or its beginning, where the user knows it. Raises FingerprintMismatch, UsageError
    (layers, or a target that is something else), NodeUnreachable when the peer has gone or lacks a file,
    ModelFileCorrupt when a copy is not what the manifest says, ConversionFailed when it cannot be written.
    """
    return _pull(peer, target, wanted, report, lambda manifest, here: _names(manifest, layers, here))


def pull_text(peer: FilePeer, target: Path, wanted: str) -> Pulled:
    """Copy the configuration, tokenizer and template alone: what a coordinator needs of a model. Raises as pull_band,
    NodeUnreachable also when the peer has no tokenizer."""

    def names(manifest: Manifest, here: set[str]) -> list[str]:
        text = text_files(manifest)
        if lacking := [name for name in (CONFIG_FILE, *text) if name not in here]:
            raise NodeUnreachable(f"the peer lacks {lacking[0]}", "give the model's folder with --model")
        return [CONFIG_FILE, *text]

    return _pull(peer, target, wanted, lambda _: None, names)


def _pull(
    peer: FilePeer,
    target: Path,
    wanted: str | None,
    report: Report,
    choose: Callable[[Manifest, set[str]], list[str]],
) -> Pulled:
    told, remote = peer.files(everything=True)
    manifest = _manifest_of(peer, told, wanted)
    names = choose(manifest, {file.name for file in remote})
    with work_folder(target, manifest) as work:
        missing = [name for name in names if not (work / name).is_file()]
        check_space(work, sum(manifest.files[name].num_bytes for name in missing))
        copied = _copy_all(peer, work, manifest, names, report)
        if work != target:
            become(work, target)
    return Pulled(manifest, tuple(names), copied)


def _manifest_of(peer: FilePeer, told: str, wanted: str | None) -> Manifest:
    if wanted is not None and not told.startswith(wanted):
        raise FingerprintMismatch(f"the peer has the model {told[:12]}, {wanted} is wanted", "ask another peer")
    text = b""
    for piece in peer.read_file(MANIFEST_FILE):
        text += piece
        if len(text) > _MOST_MANIFEST_BYTES:
            raise ModelFolderError(f"the peer's manifest has over {_MOST_MANIFEST_BYTES} B", "ask another peer")
    try:
        manifest = manifest_from_json(text.decode(), Path("the peer's manifest"))
    except UnicodeDecodeError as error:
        raise ModelFolderError("the peer's manifest is not text", "ask another peer") from error
    for name in manifest.files:
        if not _is_plain(name):
            raise ModelFolderError(f"the peer's manifest names a file {name!r} outside its folder", "ask another peer")
    if (found := fingerprint(manifest)) != told:
        raise FingerprintMismatch(f"the peer's manifest is of {found[:12]}, it said {told[:12]}", "ask another peer")
    return manifest


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


def _names(manifest: Manifest, layers: tuple[int, int], on_peer: set[str]) -> list[str]:
    first, last = layers
    if not 0 <= first <= last < manifest.num_layers:
        raise UsageError(
            f"layers {first}-{last} are not in this model, which has 0-{manifest.num_layers - 1}",
            f"use --layers a-b with 0 <= a <= b <= {manifest.num_layers - 1}",
        )
    needed = band_files(manifest, first, last)
    lacking = [name for name in needed if name not in on_peer]
    if lacking:
        raise NodeUnreachable(
            f"the peer lacks {len(lacking)} of the {len(needed)} files of layers {first}-{last}: {lacking[0]}, ...",
            "ask a peer that serves these layers",
        )
    return [*(name for name in text_files(manifest) if name in on_peer), *needed]


# ---- the files


def _copy_all(peer: FilePeer, work: Path, manifest: Manifest, names: list[str], report: Report) -> int:
    total = sum(manifest.files[name].num_bytes for name in names)
    done = copied = 0
    for name in names:
        entry = manifest.files[name]
        if not (work / name).is_file():
            for count in _copy(peer, work / name, name, entry):
                copied += count
                report(Progress(done + _part_bytes(work / name), total, name))
        done += entry.num_bytes
        report(Progress(done, total, name))
    return copied


def _copy(peer: FilePeer, path: Path, name: str, entry: FileEntry) -> Iterator[int]:
    """Copy one file; yields how many bytes came, piece by piece. A copy that is wrong is begun anew, once."""
    part = path.with_name(path.name + ".part")
    for is_last in (False, True):
        yield from _append(peer, part, name, entry)
        found = _sha256(part)
        if found == entry.sha256:
            try:
                part.replace(path)
            except OSError as error:
                raise write_failed(path, error) from error
            return
        part.unlink()
        if is_last:
            raise ModelFileCorrupt(
                f"{name} from the peer has SHA-256 {found[:16]}…, the manifest says {entry.sha256[:16]}…",
                "the peer's file is damaged: run `streamoe verify` there, or ask another peer",
            )


def _append(peer: FilePeer, part: Path, name: str, entry: FileEntry) -> Iterator[int]:
    """Bring the part to the entry's length; a line that breaks is tried again while pieces still come."""
    tries = 0
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as file:
            while (have := file.tell()) < entry.num_bytes or not part.exists():
                try:
                    for piece in peer.read_file(name, have):
                        _check_length(have + len(piece), name, entry)
                        file.write(piece)
                        have, tries = have + len(piece), 0
                        yield len(piece)
                    if have < entry.num_bytes:
                        raise NodeUnreachable(f"{name} ended at {have} of {entry.num_bytes} B", "try again")
                except NodeUnreachable:
                    tries += 1
                    if tries >= _MOST_TRIES:
                        raise
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise write_failed(part, error) from error


def _check_length(have: int, name: str, entry: FileEntry) -> None:
    if have > entry.num_bytes:
        raise ModelFileCorrupt(
            f"{name} from the peer is longer than the manifest's {entry.num_bytes} B", "ask another peer"
        )


def _part_bytes(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.with_name(path.name + ".part").stat().st_size
    return 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
