"""Whether a folder has the files of the layers that are asked for: one that was pulled has a band's only.

Owns the look and the words. Refuses to know what is in the files: their sizes and hashes are checked as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import ModelFileMissing
from .fingerprint import band_files
from .store import CONFIG_FILE, ModelStore


def check_band_files(store: ModelStore, first: int, last: int) -> None:
    """Raises ModelFileMissing, with the layers that the folder has, where files of layers first..last are not there."""
    missing = _missing(store, first, last)
    if not missing:
        return
    num_layers, folder = store.manifest.num_layers, store.folder
    lacking = [layer for layer in range(first, last + 1) if _missing(store, layer, layer)]
    here = [layer for layer in range(num_layers) if not _missing(store, layer, layer)]
    fetch = f"streamoe pull-band HOST:PORT {folder} --layers {lacking[0]}-{lacking[-1]}"
    has = f"it has {layer_ranges(here)} of 0-{num_layers - 1}" if here else "it has no whole layer"
    raise ModelFileMissing(
        f"{folder} lacks {layer_ranges(lacking)}: {missing[0]} is missing; {has}",
        f"{_serve_hint(here)}get the others from a node that has them: {fetch}; or restore the files, or convert again",
    )


def layer_ranges(layers: Iterable[int]) -> str:
    """Layers in words: "layers 0-3, 7"."""
    spans: list[tuple[int, int]] = []
    for layer in layers:
        if spans and spans[-1][1] == layer - 1:
            spans[-1] = (spans[-1][0], layer)
        else:
            spans.append((layer, layer))
    return "layers " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _serve_hint(here: list[int]) -> str:
    if not here:
        return ""
    last = here[0]
    while last + 1 in here:
        last += 1
    return f"serve what it has: streamoe-node with --layers {here[0]}-{last}; or "


def _missing(store: ModelStore, first: int, last: int) -> list[str]:
    files = (name for name in band_files(store.manifest, first, last) if name != CONFIG_FILE)
    return [name for name in files if not (store.folder / name).is_file()]
