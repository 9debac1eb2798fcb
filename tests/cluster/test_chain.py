"""A chain over toy nodes in virtual time: what runs where, beside what, and what comes back from losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.notices import BandRecovered, BandRecovering, BandStalled, Notice
from streamoe_coordinator.cluster.ports import NoRescue, Seat
from streamoe_engine.errors import ContextFull, StateLost, UsageError
from streamoe_node.errors import BandLost

from .simulation.nodes import SimDialer, SimNode
from .simulation.scenario import ClockAhead
from .simulation.toy_band import CTX_TOKENS, VOCAB, answer_of, read_failed
from .simulation.world import World

TWO = ((0, 5), (6, 11))
PROMPT = (3, 14, 15, 9, 26, 5, 35, 8)


class Bench:
    """Nodes, a chain over them, and a coordinator that runs as a task."""

    def __init__(self, *split: tuple[int, int], rescue: Any = None, **options: Any) -> None:
        self.world = World(is_told=True)
        self.nodes = {f"node-{a}": SimNode(self.world, f"node-{a}", (a, b), "bench") for a, b in split}
        self.dialer = SimDialer(self.world, self.nodes, lambda data: [(0.0, data)])
        self.notices: list[Notice] = []
        self.clock = ClockAhead(self.world)
        count = iter(range(100))
        self.chain = Chain(
            [self.dialer.seat(name) for name in self.nodes],
            ChainOptions(epoch=1, **options),
            clock=self.clock,
            rescue=rescue,
            notify=self.notices.append,
            new_session=lambda: f"talk-{next(count)}",
        )
        for node in self.nodes.values():
            node.step_s = 0.1

    def run(self, act: Callable[[], Any], most_s: float = 1000.0) -> Any:
        """What `act` gives or raises, as a task."""
        found: list[Any] = []
        failed: list[BaseException] = []

        def task() -> None:
            try:
                found.append(act())
            except Exception as error:  # noqa: BLE001 - raised again below, outside the task
                failed.append(error)

        self.world.spawn(task)
        self.world.run(lambda: bool(found or failed), most_s)
        if failed:
            raise failed[0]
        assert found, "it hangs"
        return found[0]

    def sent(self, word: str) -> list[str]:
        return [line for line in self.world.lines if word in line]

    def answer(self, state: Any = None, num_tokens: int = 6, before: Callable[[int], None] = lambda _: None) -> Any:
        """Greedy tokens after PROMPT; before(i) is called before token i is run."""
        chain = self.chain
        state = state or chain.new_state()
        logits = chain.run(state, np.array(PROMPT, np.int32), "last_logits")
        made: list[int] = []
        while True:
            assert logits is not None
            made.append(int(logits.argmax()))
            if len(made) == num_tokens:
                return tuple(made)
            before(len(made))
            logits = chain.run(state, np.array(made[-1:], np.int32), "last_logits")


def recovered(bench: Bench) -> list[BandRecovered]:
    return [notice for notice in bench.notices if isinstance(notice, BandRecovered)]


@pytest.mark.parametrize("split", [((0, 11),), TWO, ((0, 3), (4, 7), (8, 11)), tuple((i, i) for i in range(12))])
@pytest.mark.parametrize("words", [1, None])
def test_every_split_makes_the_tokens_of_one_band(split: tuple[tuple[int, int], ...], words: int | None):
    bench = Bench(*split, words_wanted=words)
    assert bench.run(bench.answer) == answer_of(PROMPT, 6)


def test_a_prompts_pieces_overlap_over_the_bands():
    bench = Bench(*TWO)
    chain, clock = bench.chain, bench.clock

    def timed(pieces: list[str]) -> float:
        state, start_s = chain.new_state(), clock.now_s()
        for i, want in enumerate(pieces):
            chain.run(state, np.array(PROMPT[2 * i : 2 * i + 2], np.int32), want)  # type: ignore[arg-type]
        return clock.now_s() - start_s

    together_s = bench.run(lambda: timed(["nothing"] * 3 + ["last_logits"]))
    one_by_one_s = bench.run(lambda: timed(["last_logits"] * 4))
    assert together_s < 0.8 * one_by_one_s


def test_pieces_that_are_still_on_their_way_are_not_lost():
    bench = Bench((0, 3), (4, 7), (8, 11))

    def pieces() -> np.ndarray:
        state = bench.chain.new_state()
        for token in PROMPT[:-1]:
            assert bench.chain.run(state, np.array([token], np.int32), "nothing") is None
        logits = bench.chain.run(state, np.array(PROMPT[-1:], np.int32), "last_logits")
        assert logits is not None
        return logits

    assert int(bench.run(pieces).argmax()) == answer_of(PROMPT, 1)[0]


def test_sequences_run_together_keep_all_bands_busy():
    bench = Bench(*TWO)
    chain = bench.chain

    def decode(num: int) -> tuple[list[int], float]:
        states = [chain.new_state() for _ in range(num)]
        prompts = [PROMPT[: 4 + i] for i in range(num)]
        first = [chain.run(s, np.array(p, np.int32), "last_logits") for s, p in zip(states, prompts, strict=True)]
        tokens = [int(logits.argmax()) for logits in first if logits is not None]
        start_s = bench.clock.now_s()
        rows = chain.run_together(states, np.array(tokens, np.int32), "last_logits")
        assert rows is not None and rows.shape == (num, VOCAB)
        passed_s = bench.clock.now_s() - start_s
        for row, prompt in zip(rows, prompts, strict=True):
            assert int(row.argmax()) == answer_of(prompt, 2)[1]
        for state in states:
            chain.release(state)
        return tokens, passed_s

    alone_s = bench.run(lambda: decode(1))[1]
    together_s = bench.run(lambda: decode(4))[1]
    assert together_s < 0.75 * 4 * alone_s


def test_figures_come_with_the_results():
    bench = Bench(*TWO)
    bench.run(bench.answer)
    before, split = bench.chain.telemetry(), bench.chain.last_split
    assert [part.layers for part in split] == [(0, 5), (6, 11)]
    assert all(part.compute_s > 0.04 and 0 < part.wire_s < 0.01 and part.sent_bytes > 64 for part in split)
    assert before.budget_bytes == 2000 and before.footprint_bytes == 20 and before.tokens_run == len(PROMPT) + 5
    assert [(layer.layer, layer.picks, layer.hits) for layer in before.layers] == [(0, 26, 13), (6, 26, 13)]
    assert split[0].as_json()["node"] == "node-0"


def test_wrong_calls_are_refused_before_anything_is_sent():
    bench = Bench(*TWO)
    chain = bench.chain
    state = bench.run(chain.new_state)
    num_lines = len(bench.sent("Step"))
    for tokens, want, error in (
        ([VOCAB], "last_logits", UsageError),
        ([-1], "nothing", UsageError),
        ([], "nothing", UsageError),
        ([1], "all_logits", UsageError),
        ([1] * (CTX_TOKENS + 1), "nothing", (UsageError, ContextFull)),
    ):
        with pytest.raises(error):
            chain.run(state, np.array(tokens, np.int32), want)  # type: ignore[arg-type]
    assert state.is_held and len(bench.sent("Step")) == num_lines
    state.release()
    with pytest.raises(StateLost):
        chain.run(state, np.array([1], np.int32), "nothing")


def test_a_forgotten_state_closes_its_sessions():
    bench = Bench(*TWO)
    state = bench.run(bench.chain.new_state)
    assert all(node.has_session("talk") for node in bench.nodes.values())
    del state
    bench.world.run(lambda: False, 1.0)
    assert not any(node.has_session("talk") for node in bench.nodes.values())


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
