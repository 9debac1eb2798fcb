"""The folder that copied files go to: locked, marked with its model, and under its name only when it is whole.

Owns the target while it is written. Refuses to know where the files come from.

    DST.partial/manifest.part   the model that is being copied
    DST.partial/<file>.part     being copied; its length is where to go on
    DST.partial/<file>          whole, its SHA-256 checked
    DST                         by one rename at the end; or DST itself, where it holds other layers of the same model
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamoe_engine.errors import ConversionFailed, UsageError
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import MANIFEST_FILE, Manifest, manifest_from_json, manifest_to_json
from streamoe_engine.sizes import format_size
from streamoe_node.errors import FingerprintMismatch

_MARK = "manifest.part"


@contextmanager
def work_folder(target: Path, manifest: Manifest) -> Iterator[Path]:
    """The folder to write in, locked: DST where it is a folder of this model, else DST.partial."""
    work = target.with_name(target.name + ".partial")
    if (target / MANIFEST_FILE).is_file():
        here = manifest_from_json((target / MANIFEST_FILE).read_text(encoding="utf-8"), target / MANIFEST_FILE)
        if fingerprint(here) != fingerprint(manifest):
            raise FingerprintMismatch(f"{target} holds another model", "give another target folder")
        work = target
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is no model folder", "give another target folder")
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = os.open(work, os.O_RDONLY)
    except OSError as error:
        raise write_failed(work, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConversionFailed(f"another process copies into {work}", "wait for it to end") from error
        if work != target:
            _mark(work, manifest)
        yield work
    finally:
        os.close(lock)


def _mark(work: Path, manifest: Manifest) -> None:
    """Say whose files the unfinished folder holds. Raises where it holds others already."""
    mark, finished = work / _MARK, work / MANIFEST_FILE
    try:
        if finished.is_file():  # a crash just before the rename
            finished.replace(mark)
        if mark.is_file():
            if mark.read_text(encoding="utf-8") != manifest_to_json(manifest):
                raise FingerprintMismatch(f"{work} holds a part of another model", "remove it, or give another target")
        elif any(work.iterdir()):
            raise UsageError(f"{work} exists and was not made by pull-band", "give another target folder")
        else:
            mark.write_text(manifest_to_json(manifest), encoding="utf-8")
    except OSError as error:
        raise write_failed(work, error) from error


def check_space(work: Path, needed_bytes: int) -> None:
    """Raises ConversionFailed when the disk has not so much room."""
    free_bytes = shutil.disk_usage(work).free
    if needed_bytes > free_bytes:
        raise ConversionFailed(
            f"{format_size(needed_bytes)} are to come, {work} has room for {format_size(free_bytes)}",
            "free some space, or give a target on another disk",
        )


def become(work: Path, target: Path) -> None:
    """All files are there: finish the folder and give it its name. Raises ConversionFailed."""
    try:
        (work / _MARK).replace(work / MANIFEST_FILE)
        _sync(work / MANIFEST_FILE)
        for folder in {work, *(path.parent for path in work.rglob("*"))}:
            _sync(folder)
        work.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise write_failed(target, error) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_failed(path: Path, error: OSError) -> ConversionFailed:
    """The error for a refused write."""
    return ConversionFailed(
        f"{path} cannot be written: {error.strerror or error}",
        "check the disk and its permissions, then run the same command again: what is whole is kept",
    )
