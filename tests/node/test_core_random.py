"""Random interleavings: a step never runs twice, no result is wrong, no state is other than it says, none is leaked."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamoe_node.session import RunItem
from streamoe_proto.messages import (
    EMPTY_PREFIX,
    Cancel,
    Checkpoint,
    Close,
    Failed,
    Ready,
    Result,
    Step,
    Trim,
    prefix_hash,
)
from tests.node.toy import Broken, Node, Stream, logits_after, step_of

# Two conversations that share their first tokens: a state of one must never answer for the other.
TEXTS = ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3], [3, 1, 4, 1, 5, 0, 0, 6, 5, 3, 5, 8, 9, 7, 9, 3])
OPS = (
    "next", "next", "next", "repeat", "gap", "back", "other_text", "trim", "checkpoint", "cancel", "detach",
    "same_epoch", "new_epoch", "old_epoch", "close", "run", "run", "settle", "break", "ttl", "old_stream",
)  # fmt: skip
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from((0, 0, 0, 1, 2)), st.integers(0, 7)), min_size=20, max_size=100
)


class Coordinator:
    """Sends what a script says, believes what the node answers, and checks each result."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.name, self.epoch = node, name, 1
        self.sent: dict[tuple[int, int], list[tuple[Step, list[int]]]] = {}
        self.streams: list[tuple[Stream, int]] = []
        self.seq = self.position = self.text = 0
        self.is_open = False
        self.attach()

    def attach(self) -> None:
        text = TEXTS[self.text][: self.position]
        stream = self.node.open(self.name, self.epoch, len(text), prefix_hash=prefix_hash(EMPTY_PREFIX, text))
        self.streams.append((stream, self.epoch))
        self.is_open = False
        self.look()

    @property
    def stream(self) -> Stream:
        return self.streams[-1][0]

    def step(self, seq: int, position: int, text: int, num: int, stream: int = -1) -> None:
        before, tokens = TEXTS[text][:position], TEXTS[text][position : position + num] or [7]
        step = step_of(seq, before, tokens)
        which, epoch = self.streams[stream]
        self.sent.setdefault((epoch, seq), []).append((step, before + tokens))
        which.attachment.receive(step)
        self.look()

    def look(self) -> None:
        for stream, epoch in self.streams:
            for frame in stream.take():
                if isinstance(frame, Result):
                    self._check(frame, epoch)
                if stream is not self.stream:
                    continue
                if isinstance(frame, Ready):
                    self.seq, self.position, self.is_open = frame.last_seq, frame.position, True
                elif isinstance(frame, Result):
                    self.seq, self.position = frame.seq, frame.position
                elif isinstance(frame, Failed) and frame.code == "need_replay":
                    self.position = frame.from_pos

    def _check(self, result: Result, epoch: int) -> None:
        true = [
            tokens
            for step, tokens in self.sent[epoch, result.seq]
            if len(tokens) == result.position and np.array_equal(result.output, logits_after(tokens))
        ]
        assert true, (result.seq, result.position)

    def act(self, op: str, number: int) -> None:
        if op == "next":
            self.step(self.seq + 1, self.position, self.text, 1 + number)
        elif op == "repeat":
            self.step(max(self.seq, 1), max(self.position - 1, 0), self.text, 1 + number % 2)
        elif op == "gap":
            self.step(self.seq + 2, self.position, self.text, 1)
        elif op == "back":
            self.step(self.seq + 1, self.position // 2, self.text, 1 + number)
        elif op == "other_text":
            self.text = 1 - self.text
        elif op in ("trim", "checkpoint", "cancel", "close"):
            frame: Any = {
                "trim": Trim(number), "checkpoint": Checkpoint(), "cancel": Cancel(self.seq + 1), "close": Close(),
            }[op]  # fmt: skip
            self.stream.attachment.receive(frame)
        elif op == "detach":
            self.stream.attachment.detach()
        elif op == "old_stream":
            self.step(self.seq + 1, self.position, self.text, 1, stream=number % len(self.streams))
        elif op in ("same_epoch", "new_epoch", "old_epoch"):
            was = self.epoch
            self.epoch = {"same_epoch": was, "new_epoch": was + 1, "old_epoch": max(was - 1, 1)}[op]
            self.attach()
            self.epoch = max(was, self.epoch)
        self.look()


def check_states(node: Node) -> None:
    """Each state is after the very tokens that its session says; as many are held as sessions have."""
    held = [session for session in node.core._board.sessions.values() if session.state is not None]
    assert len(held) == len(node.band.held) <= node.limits.max_sessions
    for session in held:
        assert session.now.position == len(session.state.tokens)
        assert session.now.prefix_hash == prefix_hash(EMPTY_PREFIX, session.state.tokens)
    for session in node.core._board.sessions.values():
        assert len(session.pending()) <= node.limits.credits
        assert all(isinstance(item, RunItem) for item in session.pending())


@settings(max_examples=250, deadline=None)
@given(SCRIPTS)
def test_any_interleaving_keeps_the_promises(script: list[tuple[str, int, int]]) -> None:
    node = Node(max_sessions=2)
    coordinators = [Coordinator(node, name) for name in ("one", "two", "three")]
    failing: list[int] = []

    def before(layer: int) -> None:
        if failing and layer == failing[0] % 3:
            failing.clear()
            raise Broken("as the script says")

    node.band.before = before
    for op, who, number in script:
        if op == "run":
            node.core.run_next()
        elif op == "settle":
            node.settle()
        elif op == "break":
            failing[:] = [number]
        elif op == "ttl":
            node.clock.at_s += 400
            node.core.tick()
        else:
            coordinators[who].act(op, number)
        check_states(node)
        for coordinator in coordinators:
            coordinator.look()
    failing.clear()
    finish(node, coordinators)


def finish(node: Node, coordinators: list[Coordinator]) -> None:
    """A coordinator that does what the node says gets the true answer; then everything is freed."""
    node.settle()
    for coordinator in coordinators:
        coordinator.look()
        for stream, _ in coordinator.streams:
            stream.attachment.detach()
    node.settle()
    for coordinator in coordinators:
        coordinator.epoch, coordinator.text = coordinator.epoch + 1, 0
        coordinator.attach()
        node.settle()
        coordinator.look()
        assert coordinator.is_open
        for _ in range(6):
            wanted = 1 + coordinator.seq
            coordinator.step(wanted, min(coordinator.position, 15), 0, 16)
            node.settle()
            coordinator.look()
            if coordinator.seq == wanted:
                break
        assert coordinator.seq == wanted and coordinator.position == 16
        coordinator.stream.attachment.detach()
    node.clock.at_s += 601
    node.core.tick()
    node.settle()
    assert not node.core.sessions() and not node.band.held
