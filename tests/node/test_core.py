"""Scripted frames against a core with a toy band: each rule of a session, one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamoe_engine.errors import ReadFailed
from streamoe_proto.messages import (
    EMPTY_PREFIX,
    Cancel,
    Checkpoint,
    Checkpointed,
    Close,
    Failed,
    Progress,
    Ready,
    Result,
    TopWords,
    Trim,
    prefix_hash,
)
from tests.node.toy import Broken, Node, hidden_after, logits_after, only_result, step_of


def only_failed(frames: list) -> Failed:
    assert len(frames) == 1 and isinstance(frames[0], Failed), frames
    return frames[0]


def test_prompt_longer_than_a_chunk_is_cut_and_gives_what_one_run_gives() -> None:
    node = Node()
    stream = node.open()
    ready = stream.take()[0]
    assert ready == Ready(0, EMPTY_PREFIX, 0, 2, 1 << 20)
    prompt = list(range(1, 11))
    result = only_result(stream.send(step_of(1, [], prompt)))
    assert result.position == 10 and np.array_equal(result.output, logits_after(prompt))
    assert [len(ran) for ran in node.band.ran] == [4, 8, 10]


def test_each_want_answers_with_its_kind() -> None:
    stream = Node().open()
    stream.take()
    assert only_result(stream.send(step_of(1, [], [1, 2, 3, 4, 5], "ack"))).output is None
    hidden = only_result(stream.send(step_of(2, [1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], "hidden"))).output
    assert np.array_equal(hidden, [hidden_after(list(range(1, end))) for end in range(7, 13)])
    words = only_result(stream.send(step_of(3, list(range(1, 12)), [12], "top_k", top_k=3))).output
    logits = logits_after(list(range(1, 13)))
    assert isinstance(words, TopWords)
    assert words.ids.tolist() == np.argsort(-logits, kind="stable")[:3].tolist()
    assert words.log_sum_exp == pytest.approx(np.log(np.exp(logits.astype(np.float64)).sum()))


def test_repeated_step_has_the_kept_result_and_does_not_run() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    first = only_result(stream.send(step_of(1, [], [1, 2])))
    ran = len(node.band.ran)
    assert only_result(stream.send(step_of(1, [], [1, 2]))) is first
    assert len(node.band.ran) == ran
    other = only_failed(stream.send(step_of(1, [], [3, 4])))
    assert (other.code, other.from_pos) == ("need_replay", 0)
    only_result(stream.send(step_of(2, [1, 2], [3])))
    assert only_failed(stream.send(step_of(1, [], [1, 2]))).code == "bad_frame"


def test_repeat_of_a_step_that_waits_does_not_run_it_twice() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    for _ in range(3):
        stream.attachment.receive(step_of(1, [], [1, 2]))
    node.settle()
    only_result(stream.take())
    assert node.band.ran == [(1, 2)]


def test_gap_and_other_tokens_need_replay_and_leave_the_state() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    gap = only_failed(stream.send(step_of(3, [1, 2, 3], [4])))
    assert (gap.code, gap.seq, gap.from_pos, gap.retryable) == ("need_replay", 3, 2, True)
    ahead = only_failed(stream.send(step_of(2, [1, 2, 3], [4])))
    assert (ahead.code, ahead.from_pos) == ("need_replay", 2)
    wrong = only_failed(stream.send(step_of(2, [1, 9], [3])))
    assert (wrong.code, wrong.from_pos) == ("need_replay", 0)
    only_result(stream.send(step_of(2, [1, 2], [3])))


def test_step_at_0_begins_anew_in_the_same_session() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    result = only_result(stream.send(step_of(2, [], [7])))
    assert result.position == 1 and np.array_equal(result.output, logits_after([7]))
    assert len(node.band.held) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"inputs": np.zeros((1, 4), np.float32)}, "bad_frame"),
        ({"inputs": np.array([], np.int32)}, "bad_frame"),
        ({"inputs": np.array([50], np.int32)}, "bad_frame"),
        ({"inputs": np.array([-1], np.int32)}, "bad_frame"),
        ({"next_hash": b"notahash"}, "bad_frame"),
        ({"want": "top_k"}, "bad_frame"),
        ({"prefix_hash": b"notahash"}, "bad_frame"),
    ],
)
def test_bad_steps_are_refused_with_a_sentence(change: dict, code: str) -> None:
    node = Node()
    stream = node.open()
    stream.take()
    failed = only_failed(stream.send(replace(step_of(1, [], [1]), **change)))
    assert (failed.code, failed.seq, failed.retryable) == (code, 1, True)
    assert failed.message and not node.band.ran
    only_result(stream.send(step_of(1, [], [1])))


def test_context_frame_and_credits_are_held_to() -> None:
    node = Node(max_frame_bytes=80, credits=2)
    stream = node.open()
    stream.take()
    over = step_of(1, [], [1] * 65)
    assert "context of 64" in only_failed(stream.send(over)).message
    large = only_failed(stream.send(step_of(1, [], [1] * 21, "ack")))
    assert large.code == "no_room" and "84 B" in large.message
    for seq in (1, 2, 3):
        stream.attachment.receive(step_of(seq, [1] * (seq - 1), [1], "ack"))
    node.settle()
    frames = stream.take()
    assert [frame.seq for frame in frames] == [3, 1, 2]
    assert isinstance(frames[0], Failed) and frames[0].code == "no_room"


def test_link_lost_in_a_step_resumes_with_the_same_number() -> None:
    node = Node()
    first = node.open()
    first.take()
    first.send(step_of(1, [], [1, 2]))
    first.attachment.receive(step_of(2, [1, 2], [3]))
    node.band.before = lambda layer: first.attachment.detach() if layer == 1 else None
    node.settle()
    assert first.take() == []
    second = node.open(position=2)
    ready = second.take()[0]
    assert (ready.position, ready.last_seq) == (3, 2)
    result = only_result(second.send(step_of(2, [1, 2], [3])))
    assert np.array_equal(result.output, logits_after([1, 2, 3]))
    assert node.band.ran == [(1, 2), (1, 2, 3)]


def test_same_coordinator_again_cuts_its_older_stream_and_waits_for_the_running_step() -> None:
    node = Node()
    first = node.open()
    first.take()
    streams = []

    def reattach(layer: int) -> None:
        if layer == 1:
            streams.append(node.open())
            streams[0].attachment.receive(step_of(1, [], [1, 2]))

    node.band.before = reattach
    frames = first.send(step_of(1, [], [1, 2]))
    assert [frame.code for frame in frames] == ["fenced"] and first.num_ended == 1
    ready, result = streams[0].take()
    assert ready.last_seq == 0 and np.array_equal(result.output, logits_after([1, 2]))
    assert node.band.ran == [(1, 2)]


def test_newer_epoch_fences_the_older_and_waits_for_its_step() -> None:
    node = Node()
    old, came = node.open(), []
    old.take()

    def takeover(layer: int) -> None:
        if layer == 1 and not came:
            came.append(node.open(epoch=2))
            assert came[0].take() == []  # where the state will be is not known yet

    node.band.before = takeover
    assert [frame.code for frame in old.send(step_of(1, [], [1, 2]))] == ["fenced"]
    ready = came[0].take()[0]
    assert (ready.position, ready.last_seq, ready.prefix_hash) == (2, 0, prefix_hash(EMPTY_PREFIX, [1, 2]))
    assert [frame.code for frame in old.send(step_of(2, [1, 2], [3]))] == ["fenced"]
    assert [frame.code for frame in node.open(epoch=1).take()] == ["fenced"]
    only_result(came[0].send(step_of(1, [1, 2], [3])))


def test_other_model_is_refused() -> None:
    failed = only_failed(Node().open(fingerprint="other").take())
    assert failed.code == "wrong_model" and "other" in failed.message


def test_error_in_a_step_loses_the_state_and_fails_what_waits_behind() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))

    def fail(layer: int) -> None:
        if layer == 2:
            raise Broken("the band broke")

    node.band.before = fail
    stream.attachment.receive(step_of(2, [1, 2], [3]))
    frames = stream.send(step_of(3, [1, 2, 3], [4]))
    assert [(f.code, f.seq, f.from_pos) for f in frames] == [("internal", 2, 0), ("need_replay", 3, 0)]
    assert "the band broke" in frames[0].message and not node.band.held
    node.band.before = lambda layer: None
    assert only_failed(stream.send(step_of(2, [1, 2], [3]))).from_pos == 0
    result = only_result(stream.send(step_of(2, [], [1, 2, 3])))
    assert np.array_equal(result.output, logits_after([1, 2, 3]))


def test_checkpoint_is_where_replay_begins_after_a_loss_or_a_restart() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    assert only_failed(stream.send(Checkpoint())).code == "bad_frame"
    stream.send(step_of(1, [], [1, 2]))
    kept = stream.send(Checkpoint())[0]
    assert isinstance(kept, Checkpointed) and kept.position == 2
    node.band.before = lambda layer: (_ for _ in ()).throw(Broken("the band broke"))
    assert only_failed(stream.send(step_of(2, [1, 2], [3]))).from_pos == 2
    node.band.before = lambda layer: None
    assert np.array_equal(only_result(stream.send(step_of(2, [1, 2], [3]))).output, logits_after([1, 2, 3]))

    fresh = Node()
    fresh.shelf = node.shelf
    fresh = _with_shelf(node)
    again = fresh.open(position=3, prefix_hash=prefix_hash(EMPTY_PREFIX, [1, 2, 3]))
    assert again.take()[0].position == 2
    assert np.array_equal(only_result(again.send(step_of(1, [1, 2], [9]))).output, logits_after([1, 2, 9]))


def _with_shelf(node: Node) -> Node:
    from streamoe_node.core import NodeCore

    fresh = Node()
    fresh.shelf = node.shelf
    fresh.core = NodeCore(fresh.facts, fresh.band, fresh.clock, fresh.limits, fresh.shelf)
    return fresh


def test_snapshot_that_cannot_be_loaded_is_given_up() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    stream.send(Checkpoint())
    stream.send(step_of(2, [1, 2], [3]))
    node.band.restore = lambda snapshot: (_ for _ in ()).throw(Broken("the snapshot is cut short"))
    failed = only_failed(stream.send(step_of(3, [1, 2], [4])))
    assert (failed.code, failed.seq, failed.from_pos) == ("need_replay", 3, 0)
    assert node.shelf.entries("s") == ()
    only_result(stream.send(step_of(3, [], [1, 2, 4])))


def test_trim_goes_to_0_or_to_a_snapshot() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    assert stream.send(Trim(2)) == []
    stream.send(Checkpoint())
    stream.send(step_of(2, [1, 2], [3, 4]))
    failed = only_failed(stream.send(Trim(3)))
    assert (failed.code, failed.from_pos) == ("need_replay", 2)
    assert stream.send(Trim(2)) == []
    assert np.array_equal(only_result(stream.send(step_of(3, [1, 2], [5]))).output, logits_after([1, 2, 5]))
    assert stream.send(Trim(0)) == []
    only_result(stream.send(step_of(4, [], [5])))


def test_cancel_of_a_waiting_step_leaves_the_session_and_of_a_running_one_stops_it() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    stream.attachment.receive(step_of(2, [1, 2], [3]))
    stream.attachment.receive(Cancel(2))
    frames = stream.send(step_of(2, [1, 2], [4]))
    assert isinstance(frames[0], Failed) and frames[0].code == "cancelled" and frames[0].retryable
    assert np.array_equal(frames[1].output, logits_after([1, 2, 4]))
    layers: list[int] = []

    def cancel(layer: int) -> None:
        layers.append(layer)
        stream.attachment.receive(Cancel(3))

    node.band.before = cancel
    failed = only_failed(stream.send(step_of(3, [1, 2, 4], [5])))
    assert (failed.code, failed.retryable, layers) == ("cancelled", False, [0])
    assert not node.band.held


def test_close_frees_state_and_snapshots_and_stops_a_running_step() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.send(step_of(1, [], [1, 2]))
    stream.send(Checkpoint())
    node.band.before = lambda layer: stream.attachment.receive(Close()) if layer == 0 else None
    stream.send(step_of(2, [1, 2], [3]))
    assert stream.num_ended == 1 and not node.core.sessions() and not node.band.held
    assert node.shelf.entries("s") == () and node.band.ran == [(1, 2)]


def test_session_without_coordinator_is_kept_then_saved_and_freed() -> None:
    node = Node(orphan_ttl_s=600)
    stream = node.open()
    stream.send(step_of(1, [], [1, 2]))
    stream.attachment.detach()
    node.clock.at_s += 599
    node.core.tick()
    node.settle()
    assert node.core.sessions() == (("s", 1, 2, False),)
    node.clock.at_s += 2
    node.core.tick()
    node.settle()
    assert not node.core.sessions() and not node.band.held
    assert node.open(position=2, prefix_hash=prefix_hash(EMPTY_PREFIX, [1, 2])).take()[0].position == 2


def test_room_is_made_from_the_session_left_longest_and_else_refused() -> None:
    node = Node(max_sessions=2)
    one, two = node.open("one"), node.open("two")
    one.send(step_of(1, [], [1, 2]))
    two.send(step_of(1, [], [3]))
    assert only_failed(node.open("three").take()).code == "no_room"
    one.attachment.detach()
    three = node.open("three")
    assert three.take() == []
    node.settle()
    assert isinstance(three.take()[0], Ready)
    assert sorted(session[0] for session in node.core.sessions()) == ["three", "two"]
    assert node.shelf.entries("one")[0].position == 2


def test_sessions_take_turns() -> None:
    node = Node()
    streams = [node.open("one"), node.open("two")]
    for number, stream in enumerate(streams):
        stream.take()
        for seq in (1, 2):
            stream.attachment.receive(step_of(seq, [number] * (seq - 1), [number]))
    node.settle()
    assert node.band.ran == [(0,), (1,), (0, 0), (1, 1)]


def test_progress_comes_every_second_while_the_step_moves_and_not_when_it_is_stuck() -> None:
    node = Node(stuck_s=30)
    stream = node.open()
    stream.take()

    def slow(layer: int) -> None:
        for _ in range(4):
            node.clock.at_s += 0.5
            node.band.read_bytes += 1
            node.core.tick()
        if layer == 2:
            for _ in range(100):
                node.clock.at_s += 1
                node.core.tick()

    node.band.before = slow
    frames = stream.send(step_of(1, [], [1]))
    told = [frame for frame in frames if isinstance(frame, Progress)]
    assert isinstance(frames[-1], Result) and all(frame.seq == 1 for frame in told)
    assert [frame.layer for frame in told[:6]] == [0, 0, 1, 1, 2, 2]
    assert 30 <= len(told) <= 37


def test_step_that_waits_behind_another_session_is_told_that_the_node_lives() -> None:
    node = Node(stuck_s=15)
    busy, patient = node.open("busy"), node.open("patient")
    busy.take(), patient.take()
    patient_step = step_of(1, [], [2])

    def long(layer: int) -> None:
        if layer == 0 and not patient.frames and node.core.state() == "busy":
            patient.attachment.receive(patient_step)
        for _ in range(8):
            node.clock.at_s += 0.5
            node.core.tick()

    node.band.before = long
    busy.attachment.receive(step_of(1, [], [1]))
    assert node.core.run_next()
    told = patient.take()
    assert len(told) >= 10 and set(told) == {Progress(1, -1, 0)}
    node.band.before = lambda layer: None
    node.settle()
    only_result(patient.take())


def test_failing_disk_refuses_new_sessions_for_a_while_and_keeps_old_ones(tmp_path) -> None:
    node = Node()
    stream = node.open()
    stream.take()
    node.band.before = lambda layer: (_ for _ in ()).throw(ReadFailed(tmp_path / "a" / "b", 0, 1, "I/O error"))
    assert only_failed(stream.send(step_of(1, [], [1]))).code == "read_failed"
    assert node.core.state() == "degraded"
    assert only_failed(node.open("other").take()).code == "read_failed"
    node.band.before = lambda layer: None
    only_result(stream.send(step_of(1, [], [1])))
    assert node.core.state() == "ready"
    assert isinstance(node.open("other").take()[0], Ready)


def test_drain_finishes_the_running_step_keeps_snapshots_and_refuses() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    stream.attachment.receive(step_of(1, [], [1, 2]))
    stream.attachment.receive(step_of(2, [1, 2], [3]))
    node.band.before = lambda layer: node.core.drain() if layer == 0 else None
    node.settle()
    frames = stream.take()
    assert [(type(f).__name__, getattr(f, "seq", 0)) for f in frames] == [
        ("Failed", 2), ("Result", 1), ("Checkpointed", 0), ("Failed", 0),
    ]  # fmt: skip
    assert frames[0].code == frames[3].code == "draining" and stream.num_ended == 1
    assert node.core.is_drained and not node.band.held and node.core.state() == "draining"
    assert node.shelf.entries("s")[0].position == 2
    assert only_failed(node.open("other").take()).code == "draining"


def test_error_of_our_own_is_told_and_leaves_run_next() -> None:
    node = Node()
    stream = node.open()
    stream.take()
    node.band.before = lambda layer: (_ for _ in ()).throw(RuntimeError("a bug"))
    stream.attachment.receive(step_of(1, [], [1]))
    with pytest.raises(RuntimeError, match="a bug"):
        node.core.run_next()
    assert only_failed(stream.take()).code == "internal"
