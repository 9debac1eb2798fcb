"""Conversations in files: whole or not there, checked, and cut for other bands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamoe_coordinator.cluster.saved_talk import Part, SavedTalk, Talk, write_talk
from streamoe_engine.snapshot_stream import from_chunks, stream_bytes, to_chunks
from streamoe_engine.state_snapshot import StateSnapshot
from streamoe_node.errors import SnapshotUnusable
from streamoe_proto.messages import EMPTY_PREFIX, prefix_hash

NUM_LAYERS = 6
TALK = Talk("f" * 64, "qwen3_moe", NUM_LAYERS, (5, 7, 9), {"messages": [["user", "Grüße"]], "thinking": None})


def state(first: int, last: int) -> StateSnapshot:
    layers = {}
    for layer in range(first, last + 1):
        base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        layers[layer] = {"keys": base + layer, "values": base * layer}
    return StateSnapshot(3, layers, "f32", "float32", "kernels", "qwen3_moe", "f" * 64)


def save(path: Path, edges: list[int]) -> int:
    bands = [(a, b - 1) for a, b in zip([0, *edges], [*edges, NUM_LAYERS], strict=True)]
    parts = [(Part(a, b, stream_bytes(state(a, b))), lambda a=a, b=b: to_chunks(state(a, b))) for a, b in bands]
    return write_talk(path, TALK, parts)


def assert_same(found: StateSnapshot, wanted: StateSnapshot) -> None:
    assert found.layers.keys() == wanted.layers.keys() and found.position == wanted.position
    for layer, arrays in wanted.layers.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(found.layers[layer][name], array)


edges = st.sets(st.integers(1, NUM_LAYERS - 1)).map(sorted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(edges, edges)
def test_written_over_some_bands_and_read_for_others(tmp_path: Path, written: list[int], read: list[int]) -> None:
    path = tmp_path / "talk"
    assert save(path, written) == path.stat().st_size
    with SavedTalk(path) as saved:
        assert saved.talk == TALK
        for first, end in zip([0, *read], [*read, NUM_LAYERS], strict=True):
            num_bytes, chunks = saved.band_stream(first, end - 1)
            data = b"".join(chunks)
            assert len(data) == num_bytes
            assert_same(from_chunks([data], 1 << 20), state(first, end - 1))


def test_what_it_says_of_its_tokens(tmp_path: Path) -> None:
    assert TALK.position == 3 and TALK.prefix_hash == prefix_hash(EMPTY_PREFIX, [5, 7, 9])
    save(tmp_path / "talk", [2])
    with SavedTalk(tmp_path / "talk") as saved:
        assert [(part.first_layer, part.last_layer) for part in saved.parts] == [(0, 1), (2, 5)]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
def test_any_damage_is_found(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "talk"
    size = save(path, [3])
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, size - 1))]
    else:
        content[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(SnapshotUnusable):
        SavedTalk(path)


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    save(path, [3])
    before = path.read_bytes()

    def breaks() -> Iterator[bytes]:
        yield b"half"
        raise SnapshotUnusable("the node has gone")

    with pytest.raises(SnapshotUnusable, match="gone"):
        write_talk(path, TALK, [(Part(0, 5, 100), breaks)])
    with pytest.raises(SnapshotUnusable, match="of 100 B"):
        write_talk(path, TALK, [(Part(0, 5, 100), lambda: [b"too little"])])
    with pytest.raises(SnapshotUnusable, match="do not cover layers 0-5"):
        write_talk(path, TALK, [(Part(0, 4, 0), lambda: [])])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(SnapshotUnusable, match="cannot be written"):
        save(tmp_path / "none" / "talk", [3])
    with pytest.raises(SnapshotUnusable, match="cannot be read"):
        SavedTalk(tmp_path / "none")
    (tmp_path / "letter").write_text("Dear all")
    with pytest.raises(SnapshotUnusable, match="no saved conversation"):
        SavedTalk(tmp_path / "letter")
