"""What a band was given comes back exactly, from memory or from the file."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.history import BandHistory, HistoryRoom
from streamoe_proto.messages import EMPTY_PREFIX


def hash_at(position: int) -> bytes:
    return EMPTY_PREFIX if position == 0 else position.to_bytes(8, "little")


def filled(room: HistoryRoom, sizes: list[int], width: int = 3) -> tuple[BandHistory, np.ndarray]:
    history, rows = BandHistory(room), np.arange(sum(sizes) * width, dtype=np.float32).reshape(-1, width)
    at = 0
    for size in sizes:
        history.append(rows[at : at + size], hash_at(at + size))
        at += size
    return history, rows


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 400), st.integers(0, 99))
def test_steps_come_back_as_they_were(sizes: list[int], room_bytes: int, begin_at: int):
    room = HistoryRoom(room_bytes)
    history, rows = filled(room, sizes)
    marks = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    begin = marks[begin_at % len(marks)]
    steps = list(history.since(begin))
    assert [(step.position, step.end) for step in steps] == list(itertools.pairwise(marks))[marks.index(begin) :]
    for step in steps:
        assert np.array_equal(step.inputs, rows[step.position : step.end]) and step.inputs.dtype == np.float32
        assert (step.prefix_hash, step.next_hash) == (hash_at(step.position), hash_at(step.end))
    assert room.used_bytes + history.spilled_bytes == rows.nbytes and room.used_bytes <= room_bytes
    history.close()
    assert room.used_bytes == 0


def test_marks_know_their_tokens():
    history, _ = filled(HistoryRoom(), [2, 3])
    assert history.is_mark(2) and history.is_mark(2, hash_at(2)) and history.is_mark(0, EMPTY_PREFIX)
    assert not history.is_mark(2, hash_at(3)) and not history.is_mark(3) and not history.is_mark(9)


def test_two_histories_share_a_room():
    room = HistoryRoom(100)
    first, _ = filled(room, [5])
    second, rows = filled(room, [4, 2])
    assert first.spilled_bytes == 0 and second.spilled_bytes == 48 and room.used_bytes == 84
    first.close()
    second.append(rows[:2], hash_at(8))
    assert second.spilled_bytes == 48
    assert [step.inputs.shape for step in second.since(0)] == [(4, 3), (2, 3), (2, 3)]
    second.close()


def test_a_base_is_where_it_begins():
    history = BandHistory(HistoryRoom(), 10, hash_at(10))
    history.append(np.zeros((2, 3), np.float32), hash_at(12))
    assert not history.is_mark(0)
    assert [(step.position, step.prefix_hash) for step in history.since(10)] == [(10, hash_at(10))]
    history.close()


def test_a_full_disk_is_told_and_keeps_what_was(monkeypatch: pytest.MonkeyPatch):
    history, rows = filled(HistoryRoom(0), [2])

    class Full:
        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    whole = history._file
    monkeypatch.setattr(history, "_file", Full(whole))
    with pytest.raises(OSError, match="No space"):
        history.append(rows, hash_at(4))
    monkeypatch.setattr(history, "_file", whole)
    assert history.position == 2 and not history.is_mark(4)
    assert [step.end for step in history.since(0)] == [2]
    history.close()
