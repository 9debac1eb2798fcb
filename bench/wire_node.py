"""A node with nothing to compute, for `wire.py`: the real service and core over a band that hands its input on.

python bench/wire_node.py LAYER LAST NUM_LAYERS SLEEP_S WIDTH     serves; prints its port
python bench/wire_node.py echo                                    a raw TCP echo instead
python bench/wire_node.py grpc-echo                               a gRPC stream that sends back what comes
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from streamoe_node.core import NodeCore
from streamoe_node.limits import NodeLimits
from streamoe_node.ports import BandCounts, BandWant
from streamoe_node.services.band import BandService
from streamoe_node.services.traffic import Traffic
from streamoe_node.shelf import MemoryShelf
from streamoe_proto.channel_options import server_options
from streamoe_proto.messages import NodeFacts

VOCAB, CTX_TOKENS = 1024, 1 << 20


class NullBand:
    """Hands hidden states on after sleeping; the last gives logits of zeros."""

    chunk_tokens, ctx_tokens, vocab_size = 4096, CTX_TOKENS, VOCAB

    def __init__(self, is_first: bool, is_last: bool, sleep_s: float, width: int) -> None:
        self.is_first, self.is_last, self.width, self._sleep_s = is_first, is_last, width, sleep_s

    def new_state(self) -> object:
        return object()

    def run(self, state: Any, inputs: np.ndarray, want: BandWant, *, before_layer: Any = None) -> np.ndarray | None:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        if want == "hidden":
            return np.zeros((len(inputs), self.width), np.float32) if self.is_first else inputs
        return np.zeros(VOCAB, np.float32) if want == "last_logits" else None

    def release(self, state: Any) -> None:
        pass

    def snapshot(self, state: Any) -> Any:
        return state

    def restore(self, snapshot: Any) -> Any:
        return snapshot

    def counts(self) -> BandCounts:
        return BandCounts()


class _Clock:
    def now_s(self) -> float:
        return time.monotonic()


def facts_of(first: int, last: int, num_layers: int, width: int) -> NodeFacts:
    """What such a node is."""
    name = f"layers-{first}"
    return NodeFacts(
        node_id=name,
        boot_id="1",
        name=name,
        protocol_major=1,
        protocol_minor=0,
        version="0",
        state="ready",
        family="null",
        fingerprint="null",
        num_layers=num_layers,
        first_layer=first,
        last_layer=last,
        hidden_size=width,
        vocab_size=VOCAB,
        ctx_tokens=CTX_TOKENS,
        chunk_tokens=4096,
        max_frame_bytes=32 * 1024 * 1024,
        kv="f32",
        compute_dtype="float32",
        backend="kernels",
        row_invariant=True,
        max_sessions=16,
        cap_bytes=0,
        footprint_bytes=0,
        peak_bytes=0,
    )


def serve(first: int, last: int, num_layers: int, sleep_s: float, width: int) -> None:
    """Until the standard input ends."""
    facts = facts_of(first, last, num_layers, width)
    band = NullBand(first == 0, last == num_layers - 1, sleep_s, width)
    core = NodeCore(lambda: facts, band, _Clock(), NodeLimits(max_sessions=16), MemoryShelf())
    server = grpc.server(
        ThreadPoolExecutor(40), handlers=[BandService(lambda: core, Traffic()).handler()], options=server_options()
    )
    with _serving(server):
        while not _is_input_over.is_set():
            core.run_next(0.5)


def grpc_echo() -> None:
    """What gRPC's Python threads need, without a line of ours."""
    method = grpc.stream_stream_rpc_method_handler(lambda frames, _: frames)
    handler = grpc.method_handlers_generic_handler("bench.Echo", {"Run": method})
    with _serving(grpc.server(ThreadPoolExecutor(4), handlers=[handler], options=server_options())):
        _is_input_over.wait()


_is_input_over = threading.Event()


@contextmanager
def _serving(server: grpc.Server) -> Iterator[None]:
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()

    def watch() -> None:
        sys.stdin.read()
        _is_input_over.set()

    threading.Thread(target=watch, daemon=True).start()
    yield
    server.stop(0).wait(5)


def echo() -> None:
    """A raw TCP echo: what the machine itself needs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(1 << 16):
                connection.sendall(data)


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        echo()
    elif sys.argv[1] == "grpc-echo":
        grpc_echo()
    else:
        serve(*map(int, sys.argv[1:4]), float(sys.argv[4]), int(sys.argv[5]))
