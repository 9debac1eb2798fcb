"""Whether two model folders compute the same: one hash of all that matters, and proofs for a band's part of it.

Owns the Merkle tree over a manifest. Two machines whose folders have one root give each other's states a meaning.
Refuses to know files: a manifest names their SHA-256, and the store and `checkpoint.verify` compare.

Leaves, in this order: "format" (version and everything the manifest says beside files), "config", "text/<file>" for
tokenizer and template files by name, "embedding", "layer-0000" ... (resident part and records), "tail". Not in it:
where the checkpoint came from, and the image encoder, which no token passes.
A leaf is SHA-256 of 0, its name, 0, its content; a node of 1, left, right; an odd node moves up as it is.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from .manifest import FORMAT_NAME, TAIL_PART, Manifest, layer_part, resident_file
from .store import CONFIG_FILE

_NOT_IN_FORMAT = ("files", "source", "has_vision")


@dataclass(frozen=True, slots=True)
class Sibling:
    """One step of a proof: the hash beside, and whether it lies to the left."""

    digest: bytes
    is_left: bool


def fingerprint(manifest: Manifest) -> str:
    """The root, 64 hexadecimal digits."""
    level = list(leaves(manifest).values())
    while len(level) > 1:
        level = _parents(level)
    return level[0].hex()


def leaves(manifest: Manifest) -> dict[str, bytes]:
    """The leaves' hashes by name, in the tree's order."""
    found = {"format": _leaf("format", _format(manifest)), "config": _file_leaf("config", manifest, [CONFIG_FILE])}
    for name in text_files(manifest):
        found[f"text/{name}"] = _file_leaf(f"text/{name}", manifest, [name])
    found["embedding"] = _file_leaf("embedding", manifest, [manifest.embedding.file])
    for layer in range(manifest.num_layers):
        found[layer_part(layer)] = _file_leaf(layer_part(layer), manifest, _layer_files(manifest, layer))
    found[TAIL_PART] = _file_leaf(TAIL_PART, manifest, [resident_file(TAIL_PART)])
    return found


def band_leaves(manifest: Manifest, first: int, last: int) -> list[str]:
    """Names of the leaves whose files a band of layers first..last reads."""
    names = ["format", "config", *(["embedding"] if first == 0 else [])]
    names += [layer_part(layer) for layer in range(first, last + 1)]
    return names + ([TAIL_PART] if last == manifest.num_layers - 1 else [])


def band_files(manifest: Manifest, first: int, last: int) -> list[str]:
    """The files, beside the manifest, that a folder needs to open layers first..last; text_files are for text only."""
    files = [CONFIG_FILE, *([manifest.embedding.file] if first == 0 else [])]
    for layer in range(first, last + 1):
        files += _layer_files(manifest, layer)
    return files + ([resident_file(TAIL_PART)] if last == manifest.num_layers - 1 else [])


def text_files(manifest: Manifest) -> list[str]:
    """Tokenizer and template files, by name: those at the top of the folder that nothing else claims."""
    claimed = {CONFIG_FILE, manifest.embedding.file}
    return sorted(name for name in manifest.files if "/" not in name and name not in claimed)


def proof(manifest: Manifest, name: str) -> list[Sibling]:
    """What shows that leaf `name` belongs to the manifest's root, from the leaf upwards. KeyError for no leaf."""
    named = leaves(manifest)
    at, level, steps = list(named).index(name) if name in named else -1, list(named.values()), []
    if at < 0:
        raise KeyError(name)
    while len(level) > 1:
        beside = at ^ 1
        if beside < len(level):
            steps.append(Sibling(level[beside], is_left=beside < at))
        at, level = at // 2, _parents(level)
    return steps


def is_proved(root: str, leaf: bytes, steps: list[Sibling]) -> bool:
    """Whether the proof leads from the leaf's hash to the root."""
    for step in steps:
        leaf = _node(step.digest, leaf) if step.is_left else _node(leaf, step.digest)
    return leaf.hex() == root


def _layer_files(manifest: Manifest, layer: int) -> list[str]:
    entry = manifest.experts_by_layer.get(layer)
    return [resident_file(layer_part(layer)), *([entry.file] if entry else [])]


def _format(manifest: Manifest) -> bytes:
    facts = {name: value for name, value in asdict(manifest).items() if name not in _NOT_IN_FORMAT}
    return json.dumps({"format": FORMAT_NAME, **facts}, sort_keys=True, separators=(",", ":")).encode()


def _file_leaf(name: str, manifest: Manifest, files: list[str]) -> bytes:
    content = "".join(f"{file}\0{manifest.files[file].sha256}\0" for file in files)
    return _leaf(name, content.encode())


def _leaf(name: str, content: bytes) -> bytes:
    return hashlib.sha256(b"\0" + name.encode() + b"\0" + content).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _parents(level: list[bytes]) -> list[bytes]:
    pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
    return [_node(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
