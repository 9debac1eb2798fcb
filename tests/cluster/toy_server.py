"""A node on loopback over real gRPC: the real core and services over a toy band. And ways to break it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from streamoe_coordinator.cluster.ports import Dialer, Seat, Target
from streamoe_coordinator.cluster.timers import MachineClock
from streamoe_node.core import NodeCore
from streamoe_node.limits import NodeLimits
from streamoe_node.services.band import BandService
from streamoe_node.services.node import NodeService
from streamoe_node.services.traffic import Traffic
from streamoe_node.shelf import MemoryShelf
from streamoe_proto.channel_options import server_options
from streamoe_proto.messages import NodeFacts
from streamoe_proto.v1 import node_pb2_grpc

from .simulation.toy_band import CTX_TOKENS, NUM_LAYERS, VOCAB, WIDTH, ToyBand


def toy_facts(name: str, layers: tuple[int, int], **changed: Any) -> NodeFacts:
    facts = NodeFacts(
        node_id=name,
        boot_id="1",
        name=name,
        protocol_major=1,
        protocol_minor=0,
        version="0",
        state="ready",
        family="toy",
        fingerprint="f00d",
        num_layers=NUM_LAYERS,
        first_layer=layers[0],
        last_layer=layers[1],
        hidden_size=WIDTH,
        vocab_size=VOCAB,
        ctx_tokens=CTX_TOKENS,
        chunk_tokens=4,
        max_frame_bytes=32 * 1024 * 1024,
        kv="f32",
        compute_dtype="float32",
        backend="kernels",
        row_invariant=True,
        max_sessions=4,
        cap_bytes=1000,
        footprint_bytes=100,
        peak_bytes=200,
    )
    return dataclasses.replace(facts, **changed)


class ToyServer:
    """A node process, but for the process. The port stays its own over restarts; the shelf does where it is kept."""

    def __init__(self, facts: NodeFacts, make_band: Callable[[], Any], shelf: MemoryShelf | None = None) -> None:
        self.facts, self._make_band, self.shelf = facts, make_band, shelf or MemoryShelf()
        self.port, self.num_boots = 0, 0
        self.core: NodeCore | None = None
        self.band: Any = None
        self.start()

    def start(self) -> None:
        self.num_boots += 1
        self.facts = dataclasses.replace(self.facts, boot_id=str(self.num_boots))
        facts = self.facts
        self.band = self._make_band()
        limits = NodeLimits(max_sessions=facts.max_sessions, max_frame_bytes=facts.max_frame_bytes, progress_s=0.2)
        core = self.core = NodeCore(lambda: facts, self.band, MachineClock(), limits, self.shelf)
        self._stopped = stopped = threading.Event()
        self._pool = ThreadPoolExecutor(40)
        self._server = grpc.server(
            self._pool, handlers=[BandService(lambda: core, Traffic()).handler()], options=server_options()
        )
        node_pb2_grpc.add_NodeServiceServicer_to_server(
            NodeService(lambda: facts, lambda: core, core.drain, 1 << 20), self._server
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

        def compute() -> None:
            while not stopped.is_set():
                core.run_next(0.1)

        def tick() -> None:
            while not stopped.wait(0.2):
                core.tick()

        self._threads = [threading.Thread(target=work, daemon=True) for work in (compute, tick)]
        for thread in self._threads:
            thread.start()

    def kill(self) -> None:
        """Streams are cut without a word, states are gone."""
        self._stopped.set()
        self._server.stop(0).wait(5)
        self._pool.shutdown(wait=True, cancel_futures=True)
        for thread in self._threads:
            thread.join(5)
        self.core = None

    def seat(self, dialer: Dialer) -> Seat:
        return Seat(dialer, Target(self.facts.node_id, self.facts.name, (f"127.0.0.1:{self.port}",)), self.facts)


def toy_band(layers: tuple[int, int], sleep_s: float = 0.0) -> Callable[[], ToyBand]:
    return lambda: ToyBand(*layers, before_step=lambda num_tokens: sleep_s * num_tokens, sleep=time.sleep)


@contextmanager
def toy_servers(*split: tuple[int, int], sleep_s: float = 0.0, **changed: Any) -> Iterator[list[ToyServer]]:
    """A server a band."""
    servers = [
        ToyServer(toy_facts(f"node-{first}", (first, last), **changed), toy_band((first, last), sleep_s))
        for first, last in split
    ]
    try:
        yield servers
    finally:
        for server in servers:
            if server.core is not None:
                server.kill()
