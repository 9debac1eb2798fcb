"""A model folder against the tensors that it must hold, bit by bit."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from math import prod
from pathlib import Path

import mlx.core as mx
import numpy as np

from streamoe_engine.checkpoint import verify_folder
from streamoe_engine.manifest import DTYPE_BYTES, Field, Manifest, RecordLayout, resident_file

Reference = dict[str, mx.array]
_DTYPES = {"U8": mx.uint8, "U32": mx.uint32, "BF16": mx.bfloat16, "F16": mx.float16, "F32": mx.float32}


def mlx_lm_views(jobs: dict[str, tuple[Path, str]], out: Path) -> dict[str, Reference]:
    """By name, what mlx-lm makes of each (checkpoint, "auto" or "keep"); one process for all."""
    arguments = [f"{source}={mode}={out / name}.safetensors" for name, (source, mode) in jobs.items()]
    script = Path(__file__).with_name("mlx_lm_view.py")
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: mx.load(str(out / f"{name}.safetensors")) for name in jobs}


def raw_bytes(array: mx.array) -> bytes:
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return np.array(flat).tobytes()


def assert_same_tensor(data: bytes, field: Field, wanted: mx.array, what: str) -> None:
    assert field.shape == tuple(wanted.shape), what
    assert _DTYPES[field.dtype] == wanted.dtype, what
    assert data == raw_bytes(wanted), what


def assert_folder_holds(folder: Path, reference: Reference) -> Manifest:
    """Every tensor of the reference is in the folder, in its place, and nothing else is."""
    manifest = verify_folder(folder)
    seen = resident_names(folder, manifest, reference)
    for entry in manifest.experts:
        records = _records(folder / entry.file, entry.record)
        assert len(records) == entry.num_experts
        for field in entry.record.fields:
            name = f"{entry.module}.{field.name}"
            for expert, record in enumerate(records):
                data = record[field.offset : field.offset + field.num_bytes]
                assert_same_tensor(data, field, reference[name][expert], f"{name}[{expert}]")
            seen.add(name)
        used = sum(field.num_bytes for field in entry.record.fields)
        assert entry.record.stride_bytes - used < 16384 + 16 * len(entry.record.fields)
    seen |= embedding_names(folder, manifest, reference)
    assert seen == set(reference)
    return manifest


def resident_names(folder: Path, manifest: Manifest, reference: Reference) -> set[str]:
    seen: set[str] = set()
    for part, fields in manifest.resident.items():
        path = folder / resident_file(part)
        loaded, content = mx.load(str(path)), path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        assert set(loaded) == {field.name for field in fields}
        for field in fields:
            assert field.offset % DTYPE_BYTES[field.dtype] == 0, field
            assert mx.array_equal(loaded[field.name], reference[field.name]).item()
            data = content[start + field.offset : start + field.offset + field.num_bytes]
            assert_same_tensor(data, field, reference[field.name], f"{part} {field.name}")
        seen |= set(loaded)
    return seen


def embedding_names(folder: Path, manifest: Manifest, reference: Reference) -> set[str]:
    entry = manifest.embedding
    content = np.fromfile(folder / entry.file, dtype=np.uint8).reshape(entry.num_rows, entry.record.stride_bytes)
    assert entry.record.stride_bytes == sum(field.num_bytes for field in entry.record.fields)
    for field in entry.record.fields:
        column = np.ascontiguousarray(content[:, field.offset : field.offset + field.num_bytes])
        whole = Field(field.name, field.dtype, (entry.num_rows, *field.shape), 0)
        assert_same_tensor(column.tobytes(), whole, reference[f"{entry.module}.{field.name}"], field.name)
    return {f"{entry.module}.{field.name}" for field in entry.record.fields}


def _records(path: Path, layout: RecordLayout) -> list[bytes]:
    content = path.read_bytes()
    assert len(content) % layout.stride_bytes == 0
    assert layout.stride_bytes % 16384 == 0
    assert all(prod(field.shape) and field.offset % 16 == 0 for field in layout.fields)
    return [content[start : start + layout.stride_bytes] for start in range(0, len(content), layout.stride_bytes)]


def folder_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder, but of the manifest, which names the source."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
