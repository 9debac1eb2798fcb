"""A chain over real gRPC on loopback: streams, threads, frames of real size, servers that die."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from streamoe_coordinator.cluster.access import Access
from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.grpc_dialer import GrpcDialer
from streamoe_coordinator.cluster.notices import BandRecovered, BandRecovering, Notice
from streamoe_coordinator.cluster.ports import ChannelLost, ChannelTimeout, Target
from streamoe_coordinator.cluster.timers import Timers
from streamoe_node.errors import BandLost
from streamoe_node.ports import BandCounts, BandWant
from streamoe_proto.messages import Open, Ready
from tests.waiting import eventually

from .simulation.toy_band import answer_of
from .toy_server import ToyServer, toy_facts, toy_servers

TWO, THREE = ((0, 5), (6, 11)), ((0, 3), (4, 7), (8, 11))
PROMPT = (3, 14, 15, 9, 26, 5, 35, 8)


@contextmanager
def chain_over(servers: list[ToyServer], notices: list[Notice] | None = None, **options: Any) -> Iterator[Chain]:
    notify = (lambda _: None) if notices is None else notices.append
    with (
        GrpcDialer(Access()) as dialer,
        Chain([server.seat(dialer) for server in servers], ChainOptions(**options), notify=notify) as chain,
    ):
        yield chain


def answer(
    chain: Chain, prompt: tuple[int, ...], num_tokens: int, before: Callable[[int], Any] = lambda _: None
) -> tuple[int, ...]:
    state = chain.new_state()
    logits = chain.run(state, np.array(prompt, np.int32), "last_logits")
    made: list[int] = []
    while True:
        assert logits is not None
        made.append(int(logits.argmax()))
        if len(made) == num_tokens:
            state.release()
            return tuple(made)
        before(len(made))
        logits = chain.run(state, np.array(made[-1:], np.int32), "last_logits")


@pytest.mark.parametrize("split", [TWO, THREE])
def test_tokens_are_those_of_one_band_and_nothing_stays(split: tuple[tuple[int, int], ...]):
    num_threads = threading.active_count()
    with toy_servers(*split) as servers:
        with chain_over(servers, words_wanted=1) as chain:
            for _ in range(3):
                assert answer(chain, PROMPT, 8) == answer_of(PROMPT, 8)
        eventually(lambda: all(s.core is not None and not s.core.sessions() for s in servers))
        assert all(server.band.num_held == 0 for server in servers)
    eventually(lambda: threading.active_count() <= num_threads + 1)


def test_sessions_of_several_threads_interleave():
    prompts = [PROMPT[i:] + PROMPT[:i] for i in range(4)]
    made: dict[int, tuple[int, ...]] = {}
    with toy_servers(*THREE, sleep_s=0.002) as servers, chain_over(servers) as chain:

        def talk(i: int) -> None:
            made[i] = answer(chain, prompts[i], 12)

        threads = [threading.Thread(target=talk, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert made == {i: answer_of(prompts[i], 12) for i in range(4)}
        assert chain.telemetry().tokens_run == 4 * (len(PROMPT) + 11)


@pytest.mark.parametrize("band", [0, 1])
@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_killed_node_that_comes_back_changes_no_token(band: int, at: int):
    notices: list[Notice] = []
    with toy_servers(*TWO) as servers, chain_over(servers, notices, checkpoint_tokens=9) as chain:

        def kill(i: int) -> None:
            if i == at:
                servers[band].kill()
                threading.Timer(0.5, servers[band].start).start()

        assert answer(chain, PROMPT, 8, kill) == answer_of(PROMPT, 8)
    assert isinstance(notices[0], BandRecovering) and isinstance(notices[-1], BandRecovered)
    assert notices[-1].way == "replayed" and notices[-1].seconds < 10


def test_a_killed_node_is_noticed_at_once_and_named_when_it_stays_away():
    notices: list[Notice] = []
    timers = Timers(recover_s=3.0, grace_s=0.5)
    with toy_servers(*TWO, sleep_s=0.2) as servers, chain_over(servers, notices, timers=timers) as chain:
        noticed_s: list[float] = []

        def kill(i: int) -> None:
            if i == 2:
                threading.Timer(0.1, lambda: (noticed_s.append(time.monotonic()), servers[1].kill())).start()

        with pytest.raises(BandLost, match=r"layers 6-11 on node-6 are lost, not recovered within 3 s"):
            answer(chain, PROMPT, 8, kill)
        assert isinstance(notices[0], BandRecovering)
        # The other node's session is closed, not left behind.
        eventually(lambda: servers[0].core is not None and not servers[0].core.sessions())


class WideBand:
    """Width 2048, and no arithmetic but one sum: frames of real size."""

    ctx_tokens, chunk_tokens, width, vocab_size = 4096, 512, 2048, 8

    def __init__(self, is_first: bool) -> None:
        self.is_first, self.is_last = is_first, not is_first

    def new_state(self) -> list[float]:
        return []

    def run(
        self, state: list[float], inputs: np.ndarray, want: BandWant, *, before_layer: Any = None
    ) -> np.ndarray | None:
        rows = np.repeat(inputs[:, None], self.width, 1).astype(np.float32) if self.is_first else inputs
        state.append(float(rows.sum(dtype=np.float64)))
        if want == "hidden":
            return rows
        return np.full(8, sum(state), np.float32) if want == "last_logits" else None

    def release(self, state: list[float]) -> None:
        state.clear()

    def snapshot(self, state: list[float]) -> list[float]:
        return list(state)

    def restore(self, snapshot: list[float]) -> list[float]:
        return list(snapshot)

    def counts(self) -> BandCounts:
        return BandCounts()


@pytest.mark.parametrize("num_tokens", [1, 511, 512, 513, 2048])
def test_frames_up_to_a_prompt_of_2048_pass(num_tokens: int):
    """512 x 2048 float32 are exactly gRPC's default limit of 4 MiB; 2048 are 16."""
    wide = {"hidden_size": 2048, "vocab_size": 8, "ctx_tokens": 4096, "chunk_tokens": 512}
    servers = [
        ToyServer(toy_facts("wide-0", (0, 5), **wide), lambda: WideBand(True)),
        ToyServer(toy_facts("wide-6", (6, 11), **wide), lambda: WideBand(False)),
    ]
    try:
        with chain_over(servers) as chain:
            assert chain.chunk_tokens >= 2048
            tokens = np.arange(num_tokens, dtype=np.int32) % 8
            logits = chain.run(chain.new_state(), tokens, "last_logits")
            assert logits is not None and logits[0] == np.float32(2048.0 * tokens.sum())
            assert chain.last_split[1].sent_bytes >= num_tokens * 2048 * 4
    finally:
        for server in servers:
            server.kill()


def test_addresses_are_tried_in_their_order():
    with toy_servers((0, 11)) as (server,), GrpcDialer(Access()) as dialer, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{unused.getsockname()[1]}"
        target = Target("node-0", "node-0", (refusing, f"127.0.0.1:{server.port}"))
        opening = Open("talk", 1, "f00d")
        start_s = time.monotonic()
        channel = dialer.dial(target, opening, 5.0)
        assert isinstance(channel.receive(5.0), Ready)
        assert time.monotonic() - start_s < 2.4, "a refused address costs no timeout"
        with pytest.raises(ChannelTimeout):
            channel.receive(0.05)
        channel.close()
        with pytest.raises(ChannelLost):
            channel.receive(1.0)
        assert dialer.node_facts(target, 5.0).node_id == "node-0"
        with pytest.raises(ChannelLost, match=r"127\.0\.0\.1:\d+: "):
            dialer.dial(Target("node-0", "node-0", (refusing,)), opening, 5.0)


def test_a_place_where_another_node_is_now_is_no_way_to_the_first():
    with (
        toy_servers((0, 11)) as (server,),
        GrpcDialer(Access()) as dialer,
        pytest.raises(ChannelLost, match="is now the node node-0"),
    ):
        dialer.node_facts(Target("gone", "gone", (f"127.0.0.1:{server.port}",)), 5.0)


def test_a_listener_that_says_nothing_ends_with_the_timeout():
    with socket.socket() as mute, GrpcDialer(Access()) as dialer:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        target = Target("mute", "mute", (f"127.0.0.1:{mute.getsockname()[1]}",))
        start_s = time.monotonic()
        with pytest.raises(ChannelLost):
            dialer.dial(target, Open("talk", 1, "f00d"), 0.5)
        assert time.monotonic() - start_s < 5.0
