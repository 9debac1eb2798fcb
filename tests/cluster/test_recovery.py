"""What comes back from losses, how, and what is said when nothing helps; in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.notices import BandRecovering, BandStalled
from streamoe_coordinator.cluster.ports import NoRescue, Seat
from streamoe_node.errors import BandLost

from .chain_bench import PROMPT, TWO, Bench, recovered
from .simulation.nodes import SimNode
from .simulation.toy_band import answer_of, read_failed


def test_a_cut_link_resumes_without_running_anything_again():
    bench = Bench(*TWO)

    def cut(i: int) -> None:
        if i == 3:
            bench.world.at(0.05, lambda: [w.cut("cable", is_silent=False) for w in list(bench.nodes["node-6"].wires)])
            bench.world.at(0.15, lambda: [w.cut("cable", is_silent=False) for w in list(bench.nodes["node-6"].wires)])

    assert bench.run(lambda: bench.answer(before=cut)) == answer_of(PROMPT, 6)
    assert {notice.way for notice in recovered(bench)} == {"resumed"}
    ran = sum(node.band.tokens_run for node in bench.nodes.values() if node.band is not None)
    assert ran == 2 * (len(PROMPT) + 5)


@pytest.mark.parametrize("band", ["node-0", "node-6"])
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_restarted_node_is_given_its_steps_again(band: str, has_snapshot: bool):
    bench = Bench(*TWO, checkpoint_tokens=9 if has_snapshot else None)

    def crash(i: int) -> None:
        if i == 4:
            bench.nodes[band].crash(is_silent=False)
            bench.world.at(2.0, bench.nodes[band].start)

    assert bench.run(lambda: bench.answer(before=crash)) == answer_of(PROMPT, 6)
    (notice,) = recovered(bench)
    assert notice.way == "replayed" and 2.0 <= notice.seconds < 6.0
    assert (notice.from_position, notice.replayed_tokens) == ((9, 2) if has_snapshot else (0, 11))
    (other,) = set(bench.nodes) - {band}
    assert bench.nodes[other].band is not None and bench.nodes[other].band.tokens_run == len(PROMPT) + 5


def test_a_frozen_node_is_noticed_and_comes_back():
    bench = Bench(*TWO)
    assert bench.run(lambda: bench.answer(before=lambda i: i == 2 and bench.nodes["node-6"].freeze(30.0))) == answer_of(
        PROMPT, 6
    )
    assert [type(notice) for notice in bench.notices[:2]] == [BandStalled, BandRecovering]
    assert recovered(bench)[0].seconds < 25.0


class Spare(NoRescue):
    """Another node with the second band, or the band opened here."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.is_here = False
        self.moved = 0

    def _seat(self, name: str) -> Seat:
        assert self.bench is not None
        node = SimNode(self.bench.world, name, (6, 11), "bench")
        self.bench.nodes[name] = node
        return self.bench.dialer.seat(name)

    def find_replacement(self, layers: tuple[int, int], avoid: frozenset[str]) -> Seat | None:
        assert layers == (6, 11) and "node-6" in avoid
        return None if self.is_here else self._seat("spare")

    def move_snapshot(self, session: str, source: Seat, target: Seat, timeout_s: float) -> bool:
        assert self.bench is not None
        nodes, self.moved = self.bench.nodes, self.moved + 1
        for entry in nodes["node-6"].shelf.entries(session):
            nodes["spare"].shelf.save(session, entry.position, entry.prefix_hash, nodes["node-6"].shelf.load(entry))
        return True

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        return self._seat("here") if self.is_here else None


@pytest.mark.parametrize("is_here", [True, False])
def test_a_node_that_stays_away_is_replaced(is_here: bool):
    spare = Spare()
    bench = spare.bench = Bench(*TWO, rescue=spare)
    spare.is_here = is_here
    made = bench.run(lambda: bench.answer(before=lambda i: i == 2 and bench.nodes["node-6"].crash(is_silent=True)))
    assert made == answer_of(PROMPT, 6)
    (notice,) = recovered(bench)
    assert (notice.node_before, notice.node) == ("node-6", "here" if is_here else "spare")
    assert bench.chain.seats[1].target.name == notice.node
    # A new sequence goes there at once.
    start_s = bench.clock.now_s()
    bench.run(bench.chain.new_state)
    assert bench.clock.now_s() - start_s < 0.1


def test_a_node_that_drains_hands_its_snapshot_over():
    spare = Spare()
    bench = spare.bench = Bench(*TWO, rescue=spare)
    made = bench.run(lambda: bench.answer(before=lambda i: i == 4 and bench.nodes["node-6"].drain()))
    assert made == answer_of(PROMPT, 6) and spare.moved >= 1
    notice = recovered(bench)[-1]
    assert notice.node == "spare" and notice.replayed_tokens == 0 and notice.seconds < 3.0


def test_a_node_that_serves_something_else_now_is_not_believed():
    bench = Bench(*TWO)

    def change(i: int) -> None:
        if i == 2:
            bench.nodes["node-6"].crash(is_silent=False)
            bench.nodes["node-6"].layers = (5, 11)
            bench.nodes["node-6"].start()

    with pytest.raises(BandLost, match="first_layer 5 where 6 was"):
        bench.run(lambda: bench.answer(before=change))


def test_a_lost_band_is_named_in_time_and_the_next_question_works():
    bench = Bench(*TWO)
    start_s = 0.0

    def crash(i: int) -> None:
        nonlocal start_s
        if i == 2:
            start_s = bench.world.now_s
            bench.nodes["node-6"].crash(is_silent=True)

    with pytest.raises(BandLost) as caught:
        bench.run(lambda: bench.answer(before=crash))
    assert bench.world.now_s - start_s < 150.0
    assert caught.value.exit_code == 4
    for part in ("layers 6-11", "node-6", "did not answer", "--layers 6-11"):
        assert part in str(caught.value)
    bench.nodes["node-6"].start()
    assert bench.run(bench.answer) == answer_of(PROMPT, 6)


def test_a_disk_that_fails_once_costs_a_replay_and_twice_the_node():
    bench = Bench(*TWO)
    made = bench.run(
        lambda: bench.answer(before=lambda i: i == 2 and bench.nodes["node-6"].next_errors.append(read_failed()))
    )
    assert made == answer_of(PROMPT, 6) and recovered(bench)[0].way == "replayed"
    spare = Spare()
    bench = spare.bench = Bench(*TWO, rescue=spare)
    errors = [read_failed() for _ in range(9)]
    made = bench.run(lambda: bench.answer(before=lambda i: i == 2 and bench.nodes["node-6"].next_errors.extend(errors)))
    assert made == answer_of(PROMPT, 6) and recovered(bench)[-1].node == "spare"


def test_a_newer_coordinator_takes_the_session_and_the_older_is_told():
    bench = Bench(*TWO)
    state = bench.run(bench.chain.new_state)
    bench.run(lambda: bench.chain.run(state, np.array(PROMPT, np.int32), "last_logits"))
    newer = Chain(bench.chain.seats, ChainOptions(epoch=2), clock=bench.clock, new_session=lambda: "talk-0")
    other = bench.run(newer.new_state)
    bench.run(lambda: newer.run(other, np.array(PROMPT, np.int32), "last_logits"))
    with pytest.raises(BandLost, match="epoch 2"):
        bench.run(lambda: bench.chain.run(state, np.array([1], np.int32), "last_logits"), 30.0)


def test_snapshots_let_another_coordinator_go_on():
    bench = Bench(*TWO)
    chain = bench.chain
    state = bench.run(chain.new_state)
    bench.run(lambda: chain.run(state, np.array(PROMPT, np.int32), "last_logits"))
    kept = bench.run(lambda: chain.checkpoint(state))
    assert [entry.position for entry in kept] == [len(PROMPT)] * 2
    for node in bench.nodes.values():
        node.crash(is_silent=False)
        node.start()
    newer = Chain(chain.seats, ChainOptions(epoch=2), clock=bench.clock)
    adopted = bench.run(lambda: newer.adopt_state(state.session, state.position, state.prefix_hash))
    first = answer_of(PROMPT, 2)[0]
    logits = bench.run(lambda: newer.run(adopted, np.array([first], np.int32), "last_logits"))
    assert int(logits.argmax()) == answer_of(PROMPT, 2)[1]
    assert all(node.band is not None and node.band.tokens_run == 1 for node in bench.nodes.values())


def test_what_before_layer_raises_ends_the_step_and_the_sessions():
    class Stop(Exception):
        pass

    bench = Bench(*TWO)
    bench.nodes["node-6"].slow_share = 1.0
    state = bench.run(bench.chain.new_state)

    def stop(layer: int) -> None:
        if layer >= 6:
            raise Stop

    start_s = bench.world.now_s
    with pytest.raises(Stop):
        bench.run(lambda: bench.chain.run(state, np.array([1], np.int32), "last_logits", before_layer=stop))
    assert not state.is_held
    bench.world.run(lambda: not any(node.has_session("talk") for node in bench.nodes.values()), 60.0)
    assert bench.world.now_s - start_s < 8.0, "the node stops at its next layer"


def test_waiting_behind_another_sessions_long_step_is_no_loss():
    bench = Bench((0, 11))
    bench.nodes["node-0"].step_s = 20.0
    made: list[tuple[int, ...]] = []
    for _ in range(2):
        bench.world.spawn(lambda: made.append(bench.answer(num_tokens=1)))
    bench.world.run(lambda: len(made) == 2, 5000.0)
    assert made == [answer_of(PROMPT, 1)] * 2
    assert not bench.notices


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_band_that_dies_while_another_works_long_is_noticed_soon(is_idle: bool):
    bench = Bench(*TWO)
    told: list[float] = []

    def talk() -> int:
        state = bench.chain.new_state()
        bench.chain.run(state, np.array(PROMPT[:4], np.int32), "nothing")
        bench.nodes["node-6"].step_s = 5.0  # 10 s and more for the four tokens
        killed_s = bench.world.now_s + (3.0 if is_idle else 0.3)
        bench.world.at(killed_s - bench.world.now_s, lambda: bench.nodes["node-0"].crash(is_silent=False))
        bench.world.at(killed_s + 0.5 - bench.world.now_s, bench.nodes["node-0"].start)
        bench.world.at(killed_s + 0.4 - bench.world.now_s, lambda: told.append(len(bench.notices)))
        bench.nodes["node-0"].step_s = 0.1 if is_idle else 0.5
        logits = bench.chain.run(state, np.array(PROMPT[4:], np.int32), "last_logits")
        assert logits is not None
        return int(logits.argmax())

    assert bench.run(talk) == answer_of(PROMPT, 1)[0]
    assert told == [1] and type(bench.notices[0]) is BandRecovering
    assert sum(type(notice) is BandRecovering for notice in bench.notices) == 1
