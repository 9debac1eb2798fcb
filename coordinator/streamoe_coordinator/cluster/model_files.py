"""The part of a model that a coordinator needs: its tokenizer, template and manifest, from wherever it is.

Owns the order of places: the folder that was named, the model that comes along, the cache, a node. Whatever the place,
its fingerprint is the nodes'. Refuses to know what is done with the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import platformdirs

from streamoe_engine.errors import StreamoeError
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import read_manifest
from streamoe_node.errors import ClusterError, FingerprintMismatch, NodeUnreachable

from ..models import embedded_target, is_converted, resolve_model
from .access import Access
from .band_pull import pull_text
from .node_client import NodeClient
from .places import Place


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
    for folder in (embedded_target(), cached_text(wanted)):
        if is_converted(folder) and _is_of(folder, wanted):
            return folder
    return _fetched(wanted, access, places)


def cached_text(wanted: str) -> Path:
    """Where a model's text files are kept once fetched."""
    return platformdirs.user_cache_path("streamoe") / "text" / wanted


def _is_of(folder: Path, wanted: str) -> bool:
    try:
        return fingerprint(read_manifest(folder)) == wanted
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
