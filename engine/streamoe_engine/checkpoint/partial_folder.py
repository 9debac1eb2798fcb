"""The folder in which a conversion works until it is whole: <target>.partial.

Owns the lock (one conversion a target), the journal of finished files, what is kept from an earlier run, and the
final rename. The journal's first line is a fingerprint of source and options; another fingerprint starts over.
Refuses to know what the files are.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import ConversionFailed, UsageError
from ..manifest import MANIFEST_FILE, FileEntry
from ..uncached_write import sync, write_failure

JOURNAL_FILE = "conversion.journal"


class PartialFolder:
    """Opened and locked for one target; a context manager. `finished`: what an earlier run has left whole."""

    def __init__(self, target: Path, fingerprint: str) -> None:
        """Raises UsageError when the target exists, and ConversionFailed when another conversion works on it."""
        self.target = target
        self.path = target.with_name(target.name + ".partial")
        self.finished: dict[str, FileEntry] = {}
        refuse_existing(target)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise write_failure(f"making {self.path} failed", error, self.path) from error
        try:
            self._take_lock()
            refuse_existing(target)
            self._resume(fingerprint)
        except BaseException:
            os.close(self._lock)
            raise

    def record(self, name: str, entry: FileEntry) -> None:
        """Note a file that is whole and on the disk. Raises ConversionFailed."""
        self.finished[name] = entry
        self._append(_line(name, entry))

    def remove(self) -> None:
        """Remove the folder, where no file was finished in it."""
        assert not self.finished, self.path
        (self.path / JOURNAL_FILE).unlink(missing_ok=True)
        self.path.rmdir()

    def become_target(self, manifest: str) -> None:
        """Write the manifest's text, then rename to the target, which has all files or does not exist.

        Raises ConversionFailed.
        """
        try:
            (self.path / MANIFEST_FILE).write_text(manifest)
            sync(self.path / MANIFEST_FILE)
            (self.path / JOURNAL_FILE).unlink()
            for folder in {self.path, *(path.parent for path in self.path.rglob("*"))}:
                sync(folder)
            self.path.replace(self.target)
            sync(self.target.parent)
        except OSError as error:
            raise write_failure(f"renaming {self.path} to {self.target} failed", error, self.target) from error

    def _take_lock(self) -> None:
        # The lock is on the folder itself: the system drops it with the process, and nothing is left to clean up.
        busy = ConversionFailed(
            f"another conversion is writing {self.target}",
            "wait for it to end, or give another target folder",
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise busy from error
        if not self.path.exists() or self.path.stat().st_ino != os.fstat(self._lock).st_ino:
            raise busy  # it was renamed between our opening and locking it

    def _resume(self, fingerprint: str) -> None:
        journal = self.path / JOURNAL_FILE
        try:
            if not journal.exists() and not (self.path / MANIFEST_FILE).exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} exists and was not made by a conversion",
                    "remove or rename that folder, or give another target folder",
                )
            self.finished = self._kept_files(journal, fingerprint)
            self._clear()
            self._restart_journal(fingerprint)
        except OSError as error:
            raise write_failure(f"resuming in {self.path} failed", error, self.path) from error

    def _kept_files(self, journal: Path, fingerprint: str) -> dict[str, FileEntry]:
        lines = [_parsed(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        if not lines or lines[0].get("fingerprint") != fingerprint:
            return {}
        found: dict[str, FileEntry] = {}
        for line in lines[1:]:
            if {"name", "num_bytes", "sha256"} <= line.keys():
                path = self.path / line["name"]
                if path.is_file() and path.stat().st_size == line["num_bytes"]:
                    found[line["name"]] = FileEntry(line["num_bytes"], line["sha256"])
        return found

    def _clear(self) -> None:
        """Remove what an earlier run began and did not finish, and the folders left empty by that."""
        for path in sorted(self.path.rglob("*"), reverse=True):  # what is in a folder comes before it
            name = path.relative_to(self.path).as_posix()
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif name not in self.finished and name != JOURNAL_FILE:
                path.unlink()

    def _restart_journal(self, fingerprint: str) -> None:
        # Written anew, since a killed run may have left half a line at the end.
        new = self.path / (JOURNAL_FILE + ".new")
        lines = [json.dumps({"fingerprint": fingerprint}), *(_line(name, e) for name, e in self.finished.items())]
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.path / JOURNAL_FILE)

    def _append(self, line: str) -> None:
        try:
            with (self.path / JOURNAL_FILE).open("a") as journal:
                journal.write(line + "\n")
        except OSError as error:
            raise write_failure(f"writing {self.path / JOURNAL_FILE} failed", error, self.path) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)


def refuse_existing(target: Path) -> None:
    """Raises UsageError when there is something at the target already, or nothing can be renamed to it."""
    if target.is_mount():
        raise UsageError(f"{target} is a file system of its own", f"give a folder in it: {target / 'model'}")
    if target.is_symlink() or target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UsageError(
            f"{target} exists already",
            f"give another target folder, or remove it first (streamoe verify {target} checks a model folder)",
        )


def _line(name: str, entry: FileEntry) -> str:
    return json.dumps({"name": name, "num_bytes": entry.num_bytes, "sha256": entry.sha256})


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # the last line of a run that was killed while it wrote
    return found if isinstance(found, dict) else {}
