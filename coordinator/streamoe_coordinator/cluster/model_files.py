"""The part of a model that a coordinator needs: its tokenizer, template and manifest, from wherever it is.

Owns the order of places: the folder that was named, the model that comes along, the cache, a node. Whatever the place,
its fingerprint is the nodes'. Refuses to know what is done with the files.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from streamoe_engine.errors import ConversionFailed, StreamoeError
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import read_manifest
from streamoe_node.errors import ClusterError, FingerprintMismatch, NodeUnreachable
from streamoe_node.models import embedded_target, is_converted, resolve_model

from .access import Access
from .band_pull import pull_text
from .node_client import NodeClient
from .places import Place
from .pull_folder import write_failed

_FETCH_S = 60.0  # some megabytes, also where another coordinator fetches them
_POLL_S = 0.1


def text_folder(model: Path | None, wanted: str, access: Access, places: Sequence[Place]) -> Path:
    """A folder with the text files and the manifest of the model `wanted` (its fingerprint).

    model: the folder that the user named, or None. places: where nodes of it answer. Raises FingerprintMismatch when
    the named folder is another model's, NodeUnreachable when no node gives the files, and what opening raises.
    """
    if model is not None:
        folder = resolve_model(model)
        found = fingerprint(read_manifest(folder))
        if found != wanted:
            raise FingerprintMismatch(
                f"{folder} is the model {found[:12]}, the nodes have {wanted[:12]}",
                "give the folder that the nodes were started with, or leave --model out",
            )
        return folder
    fetched = cached_text(wanted)
    for folder in (embedded_target(), fetched):
        if _is_of(folder, wanted):
            return folder
    with _alone(fetched):
        return fetched if _is_of(fetched, wanted) else _fetched(wanted, access, places)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Coordinators that start together fetch once. Raises ConversionFailed when it is not done in time."""
    deadline_s = time.monotonic() + _FETCH_S
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = target.with_name(f"{target.name}.lock").open("w")
    except OSError as error:
        raise write_failed(target, error) from error
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise ConversionFailed(
                        f"another process fetches {target} and has not ended in {_FETCH_S:.0f} s", "end it, ask again"
                    ) from None
                time.sleep(_POLL_S)
        yield


def cached_text(wanted: str) -> Path:
    """Where a model's text files are kept once fetched."""
    return platformdirs.user_cache_path("streamoe") / "text" / wanted


def _is_of(folder: Path, wanted: str) -> bool:
    try:
        return is_converted(folder) and fingerprint(read_manifest(folder)) == wanted
    except StreamoeError:
        return False


def _fetched(wanted: str, access: Access, places: Sequence[Place]) -> Path:
    causes = []
    for place in places:
        try:
            with NodeClient(access, place) as client:
                pull_text(client, cached_text(wanted), wanted)
        except ClusterError as error:
            causes.append(f"{place}: {error.message}")
        else:
            return cached_text(wanted)
    raise NodeUnreachable(
        f"no node gives the tokenizer: {'; '.join(causes)}", "give the model's folder with --model FOLDER"
    )
