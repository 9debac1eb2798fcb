"""The bytes of a snapshot: the same value comes back however they are cut, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_engine.errors import SnapshotMismatch, SnapshotUnusable
from streamoe_engine.snapshot_stream import MAGIC, from_chunks, stream_bytes, to_chunks
from streamoe_engine.state_snapshot import StateSnapshot

NOISE = np.random.default_rng(3)
SNAPSHOT = StateSnapshot(
    position=5,
    layers={
        2: {
            "recurrent_0": NOISE.standard_normal((3, 8)).astype(np.float32),
            "recurrent_1": NOISE.integers(0, 65536, (2, 4, 4)).astype(np.uint16),
        },
        7: {
            "keys": NOISE.standard_normal((2, 5, 4)).astype(np.float16),
            "values": NOISE.standard_normal((2, 5, 4)).astype(np.float16),
            "place": np.array([5, 5]),
        },
        9: {},
    },
    kv="f16",
    compute_dtype="float32",
    backend="mlx",
    family="some_family",
    fingerprint="ab" * 32,
)
WHOLE = b"".join(to_chunks(SNAPSHOT))


def read(data: bytes, most_bytes: int = 1 << 20) -> StateSnapshot:
    return from_chunks([data], most_bytes)


def assert_same(found: StateSnapshot, wanted: StateSnapshot) -> None:
    for name in ("position", "kv", "compute_dtype", "backend", "family", "fingerprint"):
        assert getattr(found, name) == getattr(wanted, name)
    assert list(found.layers) == list(wanted.layers)
    for layer, arrays in wanted.layers.items():
        assert found.layers[layer].keys() == arrays.keys()
        for name, array in arrays.items():
            other = found.layers[layer][name]
            assert other.dtype == array.dtype and other.shape == array.shape and np.array_equal(other, array)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8), st.integers(1, 500))
@settings(deadline=None)
def test_any_cut_gives_the_snapshot_back(cuts: list[int], chunk_bytes: int) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[start:stop] for start, stop in pairwise(edges)]
    assert_same(from_chunks(pieces, SNAPSHOT.num_bytes), SNAPSHOT)
    chunks = [bytes(chunk) for chunk in to_chunks(SNAPSHOT, chunk_bytes)]
    assert max(map(len, chunks)) <= max(chunk_bytes, 32)
    assert b"".join(chunks) == WHOLE and stream_bytes(SNAPSHOT) == len(WHOLE)


@given(st.integers(0, len(WHOLE) - 1))
@settings(deadline=None)
def test_a_stream_cut_short_is_refused(length: int) -> None:
    with pytest.raises(SnapshotUnusable):
        read(WHOLE[:length])


@given(st.integers(0, len(WHOLE) * 8 - 1))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_is_refused(bit: int) -> None:
    changed = bytearray(WHOLE)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((SnapshotUnusable, SnapshotMismatch)):  # the latter: a size grew beyond what was planned
        read(bytes(changed))


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_noise_is_refused(noise: bytes) -> None:
    for data in (noise, MAGIC + noise, MAGIC + struct.pack("<I", len(noise)) + noise):
        with pytest.raises(SnapshotUnusable):
            read(data)


def test_more_bytes_are_refused() -> None:
    with pytest.raises(SnapshotUnusable, match="after the snapshot's end"):
        read(WHOLE + b"\0")
    assert_same(from_chunks([WHOLE, b"", b""], 1 << 20), SNAPSHOT)


def test_one_over_what_was_planned_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(SnapshotMismatch, match=f"has {SNAPSHOT.num_bytes} B, there is room for 100 B"):
        read(WHOLE, 100)
    with pytest.raises(SnapshotMismatch, match="there is room for"):
        read(with_header(arrays=[[2, "keys", "float32", [1 << 20, 1 << 20, 1 << 20]]]))


GOOD: dict[str, Any] = {
    "position": 1,
    "kv": "f32",
    "compute_dtype": "float32",
    "backend": "mlx",
    "family": "x",
    "fingerprint": "y",
    "layers": [2],
    "arrays": [],
}


def with_header(**changes: Any) -> bytes:
    header = json.dumps({**GOOD, **changes}).encode()
    before = MAGIC + struct.pack("<I", len(header)) + header
    return before + hashlib.sha256(before).digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"position": -1},
        {"position": True},
        {"position": "1"},
        {"kv": "f8"},
        {"kv": ["f32"]},
        {"backend": "abacus"},
        {"family": 3},
        {"layers": [2, 2]},
        {"layers": [-1]},
        {"layers": None},
        {"arrays": [[3, "keys", "float32", [1]]]},
        {"arrays": [[2, "keys", "complex64", [1]]]},
        {"arrays": [[2, ["keys"], "float32", [1]]]},
        {"arrays": [[2, "keys", ["float32"], [1]]]},
        {"arrays": [[2, "keys", "float32", [0, 1 << 62]]]},
        {"arrays": [[2, "keys", "float32", [1.5]]]},
        {"arrays": [[2, "keys", "float32", [1] * 70]]},
        {"arrays": [[2, "keys", "float32", [1]], [2, "keys", "float32", [1]]]},
        {"arrays": [[2, "keys"]]},
    ],
)
def test_headers_that_cannot_be_ours(changes: dict[str, Any]) -> None:
    read(with_header())  # the unchanged one is whole
    with pytest.raises(SnapshotUnusable, match="header cannot be read"):
        read(with_header(**changes))
