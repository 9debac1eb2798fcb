"""A toy band for the core's tests, and a scripted coordinator.

The band is recurrent like the real ones: its answer depends on every token its state has run, in order, and a state
cannot rewind. A step run twice, skipped or run on the wrong state gives another answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamoe_engine.errors import StreamoeError
from streamoe_node.core import Attachment, NodeCore
from streamoe_node.limits import NodeLimits
from streamoe_node.ports import BandCounts, BandWant
from streamoe_node.shelf import MemoryShelf
from streamoe_proto.messages import EMPTY_PREFIX, FromNode, NodeFacts, Open, Result, Step, StepWant, prefix_hash

VOCAB, WIDTH, LAYERS = 50, 4, 3


@dataclass
class ToyState:
    tokens: list[int] = field(default_factory=list)
    is_held: bool = True


class ToyBand:
    """First and last band in one."""

    ctx_tokens, chunk_tokens, width, vocab_size, is_first, is_last = 64, 4, WIDTH, VOCAB, True, True

    def __init__(self) -> None:
        self.held: list[ToyState] = []
        self.ran: list[tuple[int, ...]] = []
        self.before: Callable[[int], None] = lambda layer: None
        self.read_bytes = 0

    def new_state(self) -> ToyState:
        state = ToyState()
        self.held.append(state)
        return state

    def run(
        self,
        state: ToyState,
        inputs: np.ndarray,
        want: BandWant,
        *,
        before_layer: Callable[[int], None] | None = None,
    ) -> np.ndarray | None:
        assert state.is_held and any(state is held for held in self.held)
        assert 1 <= len(inputs) <= self.chunk_tokens
        for layer in range(LAYERS):
            if before_layer is not None:
                before_layer(layer)
            self.before(layer)
        self.read_bytes += 10 * len(inputs)
        state.tokens += inputs.tolist()
        self.ran.append(tuple(state.tokens))
        if want == "nothing":
            return None
        if want == "hidden":
            return np.stack(
                [hidden_after(state.tokens[: len(state.tokens) - back]) for back in reversed(range(len(inputs)))]
            )
        return logits_after(state.tokens)

    def release(self, state: ToyState) -> None:
        assert state.is_held
        state.is_held = False
        self.held = [held for held in self.held if held is not state]

    def snapshot(self, state: ToyState) -> Any:
        assert state.is_held
        return tuple(state.tokens)

    def restore(self, snapshot: Any) -> ToyState:
        state = self.new_state()
        state.tokens = list(snapshot)
        return state

    def counts(self) -> BandCounts:
        return BandCounts(self.read_bytes)


def _noise(tokens: list[int], num: int) -> np.ndarray:
    seed = hashlib.sha256(np.asarray(tokens, dtype=np.int32).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "little")).standard_normal(num).astype(np.float32)


def hidden_after(tokens: list[int]) -> np.ndarray:
    return _noise(tokens, WIDTH)


def logits_after(tokens: list[int]) -> np.ndarray:
    return _noise(tokens, VOCAB)


class Clock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s


def toy_facts(**changes: Any) -> NodeFacts:
    given: dict[str, Any] = {
        "node_id": "n1", "boot_id": "b1", "name": "toy", "protocol_major": 1, "protocol_minor": 0, "version": "0",
        "state": "ready", "family": "toy", "fingerprint": "f", "num_layers": LAYERS, "first_layer": 0,
        "last_layer": LAYERS - 1, "hidden_size": WIDTH, "vocab_size": VOCAB, "ctx_tokens": 64, "chunk_tokens": 4,
        "max_frame_bytes": 1 << 20, "kv": "f32", "compute_dtype": "float32", "backend": "kernels",
        "row_invariant": True, "max_sessions": 2, "cap_bytes": 1, "footprint_bytes": 1, "peak_bytes": 1,
    }  # fmt: skip
    return NodeFacts(**{**given, **changes})


class Node:
    """A core with a toy band; everything runs on the calling thread."""

    def __init__(self, **limits: Any) -> None:
        self.band, self.clock, self.shelf = ToyBand(), Clock(), MemoryShelf()
        self.limits = NodeLimits(**{"max_sessions": 2, "max_frame_bytes": 1 << 20, "credits": 2, **limits})
        self.core = NodeCore(self.facts, self.band, self.clock, self.limits, self.shelf)

    def facts(self) -> NodeFacts:
        return toy_facts(state=self.core.state())

    def open(self, session: str = "s", epoch: int = 1, position: int = 0, **given: Any) -> Stream:
        return Stream(self, Open(session, epoch, given.pop("fingerprint", "f"), position, **given))

    def settle(self) -> None:
        while self.core.run_next():
            pass


class Stream:
    """A coordinator's side of a stream."""

    def __init__(self, node: Node, open_: Open) -> None:
        self.frames: list[FromNode] = []
        self.num_ended = 0
        self._node = node
        self.attachment: Attachment = node.core.attach(open_, self.frames.append, self._ended)

    def _ended(self) -> None:
        self.num_ended += 1

    def take(self) -> list[FromNode]:
        """The frames that came since the last look."""
        came, self.frames[:] = list(self.frames), []
        return came

    def send(self, frame: Any) -> list[FromNode]:
        """Send, let everything queued run, and see what came."""
        self.attachment.receive(frame)
        self._node.settle()
        return self.take()


def step_of(seq: int, before: list[int], tokens: list[int], want: StepWant = "logits", top_k: int = 0) -> Step:
    start = prefix_hash(EMPTY_PREFIX, before)
    ids = np.asarray(tokens, dtype=np.int32)
    return Step(seq, len(before), ids, want, start, prefix_hash(start, tokens), top_k)


def only_result(frames: list[FromNode]) -> Result:
    assert len(frames) == 1 and isinstance(frames[0], Result), frames
    return frames[0]


class Broken(StreamoeError):
    """An error of the band's own."""
