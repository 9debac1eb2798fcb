"""From what a user names to a model folder that can be opened: the embedded model, a folder, a checkpoint.

Owns the cache of converted models and who converts into it, for nodes and coordinators. Conversion runs in a process
of its own: its memory would stay in this one's peak, which is promised to keep under the cap. Refuses to know what
conversion does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from streamoe_engine.errors import ConversionFailed, NotAModelFolder, UsageError
from streamoe_engine.manifest import FORMAT_VERSION, MANIFEST_FILE
from streamoe_engine.sizes import MIB

# More than the embedded model takes on any platform: what `doctor` holds this machine's memory against.
EMBEDDED_BUDGET = 256 * MIB


def embedded_checkpoint() -> Path:
    """The checkpoint that comes with streamoe."""
    from importlib.resources import files

    return Path(str(files("streamoe_coordinator") / "embedded"))


def models_folder() -> Path:
    """Where converted models are kept."""
    return platformdirs.user_cache_path("streamoe") / "models"


def embedded_target() -> Path:
    """Where the embedded model is converted to: another folder for each release and format."""
    from importlib.metadata import version

    num_bytes = (embedded_checkpoint() / "model.safetensors").stat().st_size
    return models_folder() / f"embedded-{_short_hash(num_bytes, version('streamoe'), FORMAT_VERSION)}"


def is_converted(folder: Path) -> bool:
    """Whether this is a model folder, finished."""
    return (folder / MANIFEST_FILE).is_file()


def resolve_model(model: Path | None, *, may_convert: bool = False) -> Path:
    """The model folder for what the user named; None is the embedded model. Converts it where needed.

    may_convert: convert a checkpoint without asking. Raises NotAModelFolder, UsageError for a checkpoint that may not
    be converted, ConversionFailed.
    """
    if model is None:
        return _converted(embedded_checkpoint(), embedded_target())
    if is_converted(model):
        return model
    if not is_checkpoint_folder(model):
        raise NotAModelFolder(
            f"{model} is no converted model folder and no checkpoint with a config.json",
            "give a model folder, a checkpoint's folder, or no MODEL for the one that comes with streamoe",
        )
    target = models_folder() / f"{model.resolve().name}-{_short_hash(model.resolve(), FORMAT_VERSION)}"
    if not is_converted(target) and not may_convert and not _wants_conversion(model, target):
        raise UsageError(
            f"{model} is a checkpoint, not a converted model folder",
            f"convert it once: streamoe convert {shlex.quote(str(model))} {shlex.quote(str(target))}, or add --yes",
        )
    return _converted(model, target)


def is_checkpoint_folder(folder: Path) -> bool:
    """Whether the converter would take this folder."""
    from streamoe_engine.checkpoint import is_checkpoint

    return bool(is_checkpoint(folder))


def _wants_conversion(model: Path, target: Path) -> bool:
    if not sys.stdin.isatty():
        return False
    print(f"{model} is a checkpoint. Convert it once into {target}? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _converted(source: Path, target: Path) -> Path:
    if not is_converted(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(target.with_name(f"{target.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise ConversionFailed(
                f"{target.parent} cannot be written: {error.strerror}",
                f"convert to a folder of your own: streamoe convert {shlex.quote(str(source))} FOLDER",
            ) from error
        with _alone(lock):
            if not is_converted(target):  # another process may have done it meanwhile
                _convert(source, target)
    return target


def _convert(source: Path, target: Path) -> None:
    print(f"converting {source} into {target}, once", file=sys.stderr)
    # The command that users know, for it shows its progress; a process, so no import from the floor above.
    command = [sys.executable, "-m", "streamoe_coordinator", "convert", str(source), str(target), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        try:
            error = json.loads(done.stdout)["error"]
        except (ValueError, KeyError):
            error = {"message": f"converting {source} ended with exit code {done.returncode}", "next_step": ""}
        raise ConversionFailed(error["message"], error["next_step"])


@contextmanager
def _alone(lock: int) -> Iterator[None]:
    # Holds the open file's lock and closes it; the system does so too when the holder dies.
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another streamoe that converts this model", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _short_hash(*facts: object) -> str:
    return hashlib.sha256(" ".join(map(str, facts)).encode()).hexdigest()[:10]
