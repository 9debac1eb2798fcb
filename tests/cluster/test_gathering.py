"""From nodes around to a chain that has shown a canary, and to helpers when one goes: toy bands over real gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.cluster.access import Access
from streamoe_coordinator.cluster.addresses import LastKnown
from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.discovery import AskNodes, Discovery
from streamoe_coordinator.cluster.gathering import Gathered, Gathering
from streamoe_coordinator.cluster.grpc_dialer import GrpcDialer
from streamoe_coordinator.cluster.helpers import ClusterRescue
from streamoe_coordinator.cluster.notices import BandRecovered, Notice
from streamoe_coordinator.cluster.places import Place
from streamoe_coordinator.cluster.timers import Timers
from streamoe_coordinator.cluster.verify import canary_tokens, run_canary
from streamoe_node.errors import NodesDoNotTile, NodeUnreachable, SelfTestFailed
from tests.cluster.simulation.toy_band import VOCAB, ToyBand, answer_of
from tests.cluster.toy_server import ToyServer, toy_band, toy_facts, toy_servers
from tests.waiting import comes_to

TWO = ((0, 5), (6, 11))
PROMPT = (3, 14, 15, 9, 26, 5, 35, 8)


class Looked:
    """A discovery of these servers, and a gathering over it."""

    def __init__(self, discovery: Discovery, access: Access, tmp_path: Path, places: Sequence[Place]) -> None:
        self.discovery, self.access, self.told = discovery, access, list[str]()
        self.last_known = LastKnown(tmp_path / "nodes.json")
        self._places = places

    def gather(self, timeout_s: float = 20.0, **options: Any) -> Gathered | None:
        options = {"static": self._places, **options}
        gathering = Gathering(self.discovery, self.access, tell=self.told.append, last_known=self.last_known, **options)
        return gathering.wait(timeout_s)


@contextmanager
def looked(tmp_path: Path, servers: Sequence[ToyServer], *more: Place) -> Iterator[Looked]:
    places = [*(Place("127.0.0.1", server.port) for server in servers), *more]
    access = Access()
    ask = AskNodes(access)
    try:
        with Discovery(ask, static=places) as discovery:
            yield Looked(discovery, access, tmp_path, places)
    finally:
        ask.close()


def greedy(chain: Chain, count: int) -> tuple[int, ...]:
    state, chosen = chain.new_state(), []
    logits = chain.run(state, np.array(PROMPT, np.int32), "last_logits")
    while True:
        assert logits is not None
        chosen.append(int(logits.argmax()))
        if len(chosen) == count:
            return tuple(chosen)
        logits = chain.run(state, np.array(chosen[-1:], np.int32), "last_logits")


def test_gathered_nodes_show_a_canary_and_answer(tmp_path: Path) -> None:
    with toy_servers(*TWO) as servers, looked(tmp_path, servers) as around, GrpcDialer(around.access) as dialer:
        gathered = around.gather()
        assert gathered is not None
        assert [facts.node_id for facts in gathered.assembly.bands] == ["node-0", "node-6"]
        assert all(measured[0].speed is not None for measured in gathered.addresses.values())
        assert set(around.last_known.load()) == {"node-0", "node-6"}
        with Chain(gathered.seats(dialer), ChainOptions()) as chain:
            canary = run_canary(chain)
            assert canary.num_tokens == 4  # what the nodes' plans run at once
            assert [band.facts.node_id for band in canary.bands] == ["node-0", "node-6"]
            for band in canary.bands:
                assert (band.num_tokens, band.picks, band.hits, band.read_bytes) == (6, 12, 6, 600)
                assert band.wire_s > 0
            assert run_canary(chain).digest == canary.digest
            assert greedy(chain, 5) == answer_of(PROMPT, 5)
        # Closing a session reaches the node a moment later.
        comes_to(lambda: [server.band.num_held for server in servers], [0, 0])


def test_canary_tokens_are_spread_and_the_same_everywhere() -> None:
    tokens = canary_tokens(VOCAB, 500)
    assert (
        tokens.dtype == np.int32
        and len(set(tokens.tolist())) > VOCAB * 0.9
        and 0 <= tokens.min() <= tokens.max() < VOCAB
    )
    np.testing.assert_array_equal(canary_tokens(VOCAB, 500)[:7], canary_tokens(VOCAB, 7))
    assert canary_tokens(248_320, 4).tolist() == canary_tokens(248_320, 4).tolist() != canary_tokens(VOCAB, 4).tolist()


class BrokenBand(ToyBand):
    """Gives no numbers from its head."""

    def run(self, *args: Any, **options: Any) -> np.ndarray | None:
        output = super().run(*args, **options)
        return output * np.float32("nan") if output is not None and output.ndim == 1 else output


def test_a_chain_that_gives_no_numbers_is_not_ready(tmp_path: Path) -> None:
    server = ToyServer(toy_facts("node-0", (0, 11)), lambda: BrokenBand(0, 11))
    try:
        with looked(tmp_path, [server]) as around, GrpcDialer(around.access) as dialer:
            gathered = around.gather()
            assert gathered is not None
            with Chain(gathered.seats(dialer), ChainOptions()) as chain, pytest.raises(SelfTestFailed):
                run_canary(chain)
    finally:
        server.kill()


def test_what_is_missing_is_told_while_waiting_and_raised_at_the_end(tmp_path: Path) -> None:
    with toy_servers(TWO[0]) as servers, looked(tmp_path, servers) as around:
        with pytest.raises(NodesDoNotTile, match="layers 6-11 of 0-11"):
            around.gather(1.5)
        assert any("layers 6-11" in line and "node-0" in line for line in around.told)
        assert len(around.told) == len(set(around.told))
        dead = Place("127.0.0.1", 1)
        with looked(tmp_path, servers, dead) as more, pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1"):
            more.gather(1.5)


def test_nobody_named_and_nobody_of_this_model_is_none(tmp_path: Path) -> None:
    with looked(tmp_path, []) as around:
        assert around.gather(0.3) is None
    with toy_servers(TWO[0]) as servers, looked(tmp_path, servers) as around:
        assert around.gather(1.0, static=(), fingerprint="another") is None
        with pytest.raises(NodesDoNotTile):
            around.gather(1.0, static=(), fingerprint="f00d")


def test_a_node_that_loads_is_waited_for(tmp_path: Path) -> None:
    with toy_servers(*TWO, state="loading") as servers, looked(tmp_path, servers) as around:

        def fill(_: Any) -> None:
            raise AssertionError("nothing is to be filled while a node loads")

        around.discovery.wait(lambda nodes: len(nodes) == 2, 10)
        gathering = Gathering(around.discovery, around.access, fill=fill, last_known=around.last_known)
        deadline_s = time.monotonic() + 1.0
        for server in servers:  # restarts say another boot id: the facts are the core's
            server.kill()
            server.facts = toy_facts(server.facts.node_id, (server.facts.first_layer, server.facts.last_layer))
            server.start()
        found = gathering.wait(0.1)
        assert found is not None and time.monotonic() > deadline_s - 1.0


def test_this_process_fills_a_gap(tmp_path: Path) -> None:
    with (
        toy_servers(TWO[0]) as servers,
        ToyHere(TWO[1]) as here,
        looked(tmp_path, servers) as around,
        GrpcDialer(around.access) as dialer,
    ):
        gathered = around.gather(0.5, fill=lambda nodes: here.server.seat(dialer) if len(nodes) == 1 else None)
        assert gathered is not None and gathered.here is not None
        with Chain(gathered.seats(dialer), ChainOptions()) as chain:
            assert greedy(chain, 4) == answer_of(PROMPT, 4)


class ToyHere:
    """A band that nobody announces."""

    def __init__(self, layers: tuple[int, int], name: str = "here") -> None:
        self.server = ToyServer(toy_facts(name, layers), toy_band(layers))

    def __enter__(self) -> ToyHere:
        return self

    def __exit__(self, *_: object) -> None:
        if self.server.core is not None:
            self.server.kill()


def test_another_node_takes_over_where_one_died(tmp_path: Path) -> None:
    """The chain asks the rescue, the rescue looks among the nodes around; the words stay the same."""
    notices: list[Notice] = []
    with ExitStack() as running:
        servers = running.enter_context(toy_servers(*TWO))
        spare = running.enter_context(ToyHere(TWO[0], "spare")).server
        other = running.enter_context(ToyHere((0, 4), "other")).server  # not the same layers
        around = running.enter_context(looked(tmp_path, [*servers, spare, other]))
        dialer = running.enter_context(GrpcDialer(around.access))
        around.discovery.wait(lambda nodes: len(nodes) == 4, 10)
        gathered = around.gather()
        assert gathered is not None
        model = gathered.assembly.first
        rescue = ClusterRescue(around.discovery, around.access, dialer, model)
        assert rescue.find_replacement(TWO[1], frozenset({"node-6"})) is None
        assert rescue.open_locally(TWO[1]) is None
        timers = Timers(dial_s=1.0, grace_s=0.5, backoff_first_s=0.05)
        seats = gathered.seats(dialer)
        with Chain(seats, ChainOptions(timers=timers), rescue=rescue, notify=notices.append) as chain:
            state, chosen = chain.new_state(), []
            logits = chain.run(state, np.array(PROMPT, np.int32), "last_logits")
            for step in range(6):
                assert logits is not None
                chosen.append(int(logits.argmax()))
                if step == 2:
                    first = next(s for s in [*servers, spare] if s.facts.node_id == chain.seats[0].facts.node_id)
                    first.kill()
                logits = chain.run(state, np.array(chosen[-1:], np.int32), "last_logits")
            assert tuple(chosen) == answer_of(PROMPT, 6)
            moved = [notice for notice in notices if isinstance(notice, BandRecovered)]
            assert len(moved) == 1 and moved[0].node != moved[0].node_before
