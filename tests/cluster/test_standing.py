"""How bands stand while one of them fails, as the server's front ends show it; in virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.cluster.standing import HeardNode
from streamoe_coordinator.runs_tokens import BandStatus
from streamoe_coordinator.serving.chain_sequences import ChainSequences
from streamoe_node.errors import BandLost

from .chain_bench import PROMPT, TWO, Bench


class Front:
    """A server's look at a bench's chain."""

    def __init__(self, **options: Any) -> None:
        self.bench = Bench(*TWO, **options)
        self.silent: set[str] = set()
        self.band = ChainSequences(self.bench.chain, self._heard)
        self.looks: list[tuple[str, ...]] = []

    def _heard(self) -> list[HeardNode]:
        facts = [seat.facts for seat in self.bench.chain.seats]
        return [HeardNode(of_node, 0.0021, of_node.node_id in self.silent) for of_node in facts]

    def states(self) -> tuple[str, ...]:
        return tuple(status.state for status in self.bands())

    def bands(self) -> list[BandStatus]:
        return list(self.band.bands())

    def look_at(self, *times_s: float) -> None:
        for after_s in times_s:
            self.bench.world.at(after_s, lambda: self.looks.append(self.states()))

    def step(self, state: Any) -> None:
        self.band.run(state, np.array(PROMPT[:4], np.int32), "last_logits")


def test_a_band_that_goes_and_comes_back_is_lost_in_between():
    front = Front(words_wanted=None)
    node = front.bench.nodes["node-6"]

    def talk() -> None:
        state = front.band.new_state()
        assert front.states() == ("up", "up") and front.bands()[0].hop_s is None
        front.bench.world.at(0.2, lambda: node.crash(is_silent=False))
        front.bench.world.at(3.0, node.start)
        front.look_at(0.1, 1.0, 2.9)
        front.step(state)
        state.release()

    front.bench.run(talk)
    assert front.looks == [("up", "up"), ("up", "lost"), ("up", "lost")]
    first, last = front.bands()
    assert (first.state, last.state, last.detail) == ("up", "up", "")
    assert first.rtt_ms == 2.1 and first.hop_s is not None and 0 < first.hop_s < 0.01


def test_a_silent_band_is_suspected_then_lost_and_up_again_when_it_answers():
    front = Front()

    def talk() -> None:
        state = front.band.new_state()
        front.bench.nodes["node-0"].freeze(10.0)
        front.look_at(4.0, 8.0)
        front.step(state)
        front.looks.append(front.states())

    front.bench.run(talk)
    assert front.looks == [("up", "up"), ("suspect", "up"), ("up", "up")]


def test_after_a_run_has_failed_a_node_that_answers_is_up_and_one_that_does_not_is_suspected():
    front = Front()

    def talk() -> None:
        state = front.band.new_state()
        front.bench.nodes["node-6"].crash(is_silent=False)
        front.look_at(60.0)
        with pytest.raises(BandLost):
            front.step(state)

    front.bench.run(talk)
    assert front.looks == [("up", "lost")]
    front.silent = {"node-6"}
    assert front.states() == ("up", "suspect") and "does not answer" in front.bands()[1].detail
    front.silent = set()
    assert front.states() == ("up", "up")
