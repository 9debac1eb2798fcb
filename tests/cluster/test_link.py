"""One session on one node, against a scripted stream: what the link sends, and what it makes of the answers."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.cluster.link import BandLink
from streamoe_coordinator.cluster.ports import ChannelLost, ChannelTimeout, Seat, Target
from streamoe_coordinator.cluster.timers import Timers
from streamoe_coordinator.cluster.troubles import (
    LinkTrouble,
    NodeUnfit,
    ReplayNeeded,
    SessionTaken,
    StepFailed,
)
from streamoe_proto.messages import (
    EMPTY_PREFIX,
    Checkpoint,
    Checkpointed,
    Close,
    Failed,
    FailureCode,
    Open,
    Progress,
    Ready,
    Result,
    Step,
    TopWords,
)

from .toy_server import toy_facts

READY = Ready(0, EMPTY_PREFIX, 0, 2, 1 << 20)
STEP = Step(0, 0, np.array([1, 2], np.int32), "ack", EMPTY_PREFIX, b"12345678")
DONE = Result(1, 2, None)


class Script:
    """A dialer, its only stream and its clock. incoming: (seconds after the last, frame or error)."""

    def __init__(self, *incoming: tuple[float, Any]) -> None:
        self.incoming = deque(incoming)
        self.sent: list[Any] = []
        self.time_s = 0.0
        self.is_closed = False

    def dial(self, target: Target, opening: Open, timeout_s: float) -> Script:
        self.sent.append(opening)
        return self

    def node_facts(self, target: Target, timeout_s: float) -> Any:
        raise AssertionError("the link asks no facts")

    def send(self, frame: Any) -> None:
        self.sent.append(frame)

    def receive(self, timeout_s: float) -> Any:
        if not self.incoming or self.incoming[0][0] > timeout_s:
            self.time_s += timeout_s
            if self.incoming:
                wait_s, frame = self.incoming.popleft()
                self.incoming.appendleft((wait_s - timeout_s, frame))
            raise ChannelTimeout
        wait_s, frame = self.incoming.popleft()
        self.time_s += wait_s
        if isinstance(frame, Exception):
            raise frame
        return frame

    def close(self) -> None:
        self.is_closed = True

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


def opened(*incoming: tuple[float, Any], **hooks: Any) -> tuple[BandLink, Script]:
    script = Script((0.0, READY), *incoming)
    seat = Seat(script, Target("node-0", "node-0"), toy_facts("node-0", (0, 11)))
    link = BandLink(seat, Open("talk", 1, "f00d"), script, Timers(), **hooks)
    link.open(30.0)
    return link, script


def steps_of(script: Script) -> list[int]:
    return [frame.seq for frame in script.sent if isinstance(frame, Step)]


def test_steps_are_numbered_from_what_the_node_has_done():
    link, script = opened((0.1, DONE), (0.1, Result(2, 4, None)))
    link.submit(STEP)
    answer = link.answer()
    assert answer.result == DONE and answer.round_trip_s == pytest.approx(0.1)
    link.submit(Step(0, 2, STEP.inputs, "ack", b"12345678", b"23456789"))
    link.answer()
    assert steps_of(script) == [1, 2]


def test_a_silent_node_is_asked_again_then_given_up():
    silences: list[float] = []
    link, script = opened(on_silence=silences.append)
    link.submit(STEP)
    with pytest.raises(LinkTrouble, match="silent for 15 s"):
        link.answer()
    assert silences == [pytest.approx(5.0)] and steps_of(script) == [1, 1]
    assert script.time_s == pytest.approx(15.0, abs=0.1)


def test_progress_keeps_a_long_step_alive():
    layers: list[int] = []
    told = [(1.0, Progress(1, layer, 0)) for layer in range(40)]
    link, script = opened(*told, (0.5, DONE), on_layer=layers.append)
    link.submit(STEP)
    assert link.answer().result == DONE
    assert steps_of(script) == [1] and layers == list(range(40))


def test_progress_of_another_step_is_no_sign_of_life():
    link, script = opened(*[(1.0, Progress(7, 0, 0))] * 30)
    link.submit(STEP)
    with pytest.raises(LinkTrouble, match="silent"):
        link.answer()
    assert script.time_s < 16.0


def test_a_step_has_a_last_deadline():
    link, script = opened(*[(1.0, Progress(1, 0, 0))] * 4000)
    link.submit(STEP)
    with pytest.raises(LinkTrouble, match="longer than 3600 s"):
        link.answer()
    assert script.time_s < 3610.0


def test_a_large_frame_may_take_its_time_on_the_wire():
    link, script = opened((10.0, Result(1, 2000, None)))
    link.submit(Step(0, 0, np.zeros((2000, 2048), np.float32), "ack", EMPTY_PREFIX, b"12345678"))
    link.answer()
    assert steps_of(script) == [1]


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("need_replay", ReplayNeeded),
        ("fenced", LinkTrouble),
        ("unknown_session", LinkTrouble),
        ("bad_frame", LinkTrouble),
        ("no_room", LinkTrouble),
        ("draining", NodeUnfit),
        ("wrong_model", NodeUnfit),
        ("cancelled", LinkTrouble),
        ("read_failed", StepFailed),
        ("internal", StepFailed),
    ],
)
def test_a_refused_step_says_what_helps(code: FailureCode, trouble: type[Exception]):
    link, _ = opened((0.1, Failed(code, "the reason", seq=1, from_pos=4)))
    link.submit(STEP)
    with pytest.raises(trouble, match="the reason") as caught:
        link.answer()
    assert getattr(caught.value, "from_position", 4) == 4


def test_a_fence_at_opening_means_that_the_session_is_taken():
    script = Script((0.1, Failed("fenced", "epoch 9 has it")))
    seat = Seat(script, Target("node-0", "node-0"), toy_facts("node-0", (0, 11)))
    with pytest.raises(SessionTaken, match="epoch 9"):
        BandLink(seat, Open("talk", 1, "f00d"), script, Timers()).open(30.0)


def test_opening_has_a_deadline():
    script = Script()
    seat = Seat(script, Target("node-0", "node-0"), toy_facts("node-0", (0, 11)))
    with pytest.raises(LinkTrouble, match="did not open"):
        BandLink(seat, Open("talk", 1, "f00d"), script, Timers()).open(3.0)
    assert script.time_s == pytest.approx(3.0)


def test_late_repeats_are_not_taken_for_the_answer():
    link, _ = opened((0.1, DONE), (0.1, DONE), (0.1, Failed("internal", "of step 1", seq=1)), (0.1, Result(2, 4, None)))
    link.submit(STEP)
    link.answer()
    link.submit(Step(0, 2, STEP.inputs, "ack", b"12345678", b"23456789"))
    assert link.answer().result.position == 4


@pytest.mark.parametrize(
    ("want", "result"),
    [
        ("ack", Result(1, 3, None)),
        ("ack", Result(1, 2, np.zeros(5, np.float32))),
        ("hidden", Result(1, 2, None)),
        ("hidden", Result(1, 2, np.zeros((1, 16), np.float32))),
        ("logits", Result(1, 2, np.zeros((2, 16), np.float32))),
        ("top_k", Result(1, 2, np.zeros(5, np.float32))),
        ("top_k", Result(1, 2, TopWords(np.zeros(3, np.int32), np.zeros(3, np.float32), 0.0))),
    ],
)
def test_a_result_of_the_wrong_kind_is_no_result(want: Any, result: Result):
    link, _ = opened((0.1, result))
    link.submit(Step(0, 0, STEP.inputs, want, EMPTY_PREFIX, b"12345678", top_k=2))
    with pytest.raises(LinkTrouble, match="damaged"):
        link.answer()


def test_a_dead_stream_is_told_at_once_and_by_its_cause():
    link, script = opened((0.01, ChannelLost("connection reset")))
    link.submit(STEP)
    with pytest.raises(LinkTrouble, match="connection reset"):
        link.answer()
    assert script.time_s < 0.1


def test_snapshots_are_asked_for_beside_steps():
    kept = Checkpointed(2, "s1", 10)
    link, script = opened((0.1, DONE), (0.1, kept), (0.1, Result(2, 4, None)))
    link.submit(STEP)
    link.answer()
    link.ask_checkpoint()
    link.submit(Step(0, 2, STEP.inputs, "ack", b"12345678", b"23456789"))
    link.answer()
    assert link.checkpointed == kept and link.num_checkpoints_due == 0
    assert [type(frame) for frame in script.sent] == [Open, Step, Checkpoint, Step]


def test_a_refused_snapshot_harms_no_step():
    link, _ = opened((0.1, Failed("no_room", "the disk is full", retryable=True)), (0.1, DONE))
    link.ask_checkpoint()
    link.submit(STEP)
    assert link.answer().result == DONE


def test_closing_ends_the_session_or_leaves_it():
    link, script = opened()
    link.close(is_over=False)
    assert script.is_closed and not any(isinstance(frame, Close) for frame in script.sent)
    link, script = opened()
    link.close(is_over=True)
    link.close(is_over=True)
    assert script.is_closed and isinstance(script.sent[-1], Close)
