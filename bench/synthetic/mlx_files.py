"""Writes a synthetic model as a folder of safetensors shards.

Owns file format, shards and order: config.json comes last, so a folder that was cut short is no checkpoint. Holds
one piece of one tensor at a time. Refuses to know what the tensors are.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .mlx_layout import Recipe, Tensor, config, tensors
from .spare_cache import CacheSparingFile
from .tokenizer import write_tokenizer


def plan_shards(entries: Sequence[Tensor], shard_bytes: int) -> list[list[Tensor]]:
    """The tensors in order, in as few shards of at most shard_bytes as that allows; a bigger tensor has its own."""
    shards: list[list[Tensor]] = [[]]
    used_bytes = 0
    for entry in entries:
        if shards[-1] and used_bytes + entry.num_bytes > shard_bytes:
            shards.append([])
            used_bytes = 0
        shards[-1].append(entry)
        used_bytes += entry.num_bytes
    return shards


def _header(entries: Sequence[Tensor]) -> bytes:
    table: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for entry in entries:
        end = offset + entry.num_bytes
        table[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(path: Path, entries: Sequence[Tensor]) -> None:
    """Write one safetensors file, piece by piece."""
    with CacheSparingFile(path) as file:
        file.write(_header(entries))
        for entry in entries:
            num_bytes = 0
            for piece in entry.pieces():
                file.write(np.ascontiguousarray(piece))
                num_bytes += piece.nbytes
            assert num_bytes == entry.num_bytes, (entry.name, num_bytes, entry.num_bytes)


def write_folder(recipe: Recipe, folder: Path, shard_bytes: int) -> int:
    """Write the whole checkpoint into a new or empty folder; the bytes of its tensors are returned.

    Raises FileExistsError for a folder that has files, whose shards would mix with the new ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder, or empty it")
    shards = plan_shards(list(tensors(recipe)), shard_bytes)
    weight_map = {}
    for index, entries in enumerate(shards):
        name = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(folder / name, entries)
        weight_map.update({entry.name: name for entry in entries})
        print(f"{name}: {sum(entry.num_bytes for entry in entries)} B", file=sys.stderr, flush=True)
    total = sum(entry.num_bytes for entries in shards for entry in entries)
    index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_json, indent=1) + "\n")
    write_tokenizer(folder, recipe.shape.vocab)
    (folder / "config.json").write_text(json.dumps(config(recipe.shape), indent=1) + "\n")
    return total
