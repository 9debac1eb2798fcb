"""What a hop costs in software: one step of 8 KiB to a node whose band computes nothing, and its answer.

Runs a real gRPC server with the node's own core, services and wire in a process of its own, on loopback, beside a raw
TCP echo of the same bytes in the same run. Prints p50 and p99 in milliseconds.

    .venv/bin/python bench/hop.py [--rounds 2000] [--tokens 1] [--width 2048]
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import grpc
import numpy as np

from streamoe_node.core import NodeCore
from streamoe_node.limits import NodeLimits
from streamoe_node.ports import BandCounts
from streamoe_node.services.band import BandService
from streamoe_node.services.traffic import Traffic
from streamoe_node.shelf import MemoryShelf
from streamoe_proto import wire
from streamoe_proto.channel_options import client_options, server_options
from streamoe_proto.messages import EMPTY_PREFIX, NodeFacts, Open, Result, Step


class NoBand:
    """Gives its input back: what is left is the hop."""

    chunk_tokens, vocab_size, is_first, is_last = 1 << 20, 1000, False, False
    ctx_tokens = 1 << 30

    def __init__(self, width: int) -> None:
        self.width = width

    def new_state(self) -> object:
        return object()

    def run(self, state: Any, inputs: np.ndarray, want: str, **_: Any) -> np.ndarray:
        return inputs

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


def serve(width: int, told: Connection) -> None:
    """The node's process: gRPC's threads, and this one, which computes."""
    facts = NodeFacts(
        "n", "b", "hop", 1, 0, "0", "ready", "none", "f", 1, 0, 0, width, 1000, 1 << 30, 1 << 20, 1 << 25, "f32",
        "float32", "none", True, 4, 1, 1, 1,
    )  # fmt: skip
    core = NodeCore(lambda: facts, NoBand(width), _Clock(), NodeLimits(), MemoryShelf())
    server = grpc.server(
        ThreadPoolExecutor(8), handlers=[BandService(lambda: core, Traffic()).handler()], options=server_options()
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    told.send(port)
    while not told.poll():
        core.run_next(0.2)
    server.stop(None)


def echo(told: Connection) -> None:
    """The raw TCP echo's process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told.send(listener.getsockname()[1])
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while data := connection.recv(1 << 20):
                connection.sendall(data)


def timed(rounds: int, once: Callable[[int], None]) -> tuple[float, float]:
    """p50 and p99 in milliseconds, after a tenth of the rounds to warm up."""
    took = []
    for number in range(1, rounds + rounds // 10 + 1):
        start_s = time.perf_counter()
        once(number)
        took.append(1000 * (time.perf_counter() - start_s))
    return tuple(np.percentile(took[rounds // 10 :], [50, 99]).tolist())  # type: ignore[return-value]


def tcp_times(port: int, num_bytes: int, rounds: int) -> tuple[float, float]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = bytes(num_bytes)

        def once(number: int) -> None:
            connection.sendall(data)
            left = num_bytes
            while left:
                left -= len(connection.recv(left))

        return timed(rounds, once)


def node_times(port: int, hidden: np.ndarray, rounds: int) -> tuple[float, float]:
    out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=client_options()) as channel:
        call = channel.stream_stream("/streamoe_proto.v1.BandService/Run", None, None)(iter(out.get, None))
        out.put(wire.encode_to_node(Open("hop", 1, "f")))
        wire.decode_from_node(next(call))

        def once(number: int) -> None:
            before = EMPTY_PREFIX if number == 1 else number.to_bytes(8, "little")
            after = (number + 1).to_bytes(8, "little")
            step = Step(number, (number - 1) * len(hidden), hidden, "hidden", before, after)
            out.put(wire.encode_to_node(step))
            result = wire.decode_from_node(next(call))
            assert isinstance(result, Result) and result.seq == number, result

        times = timed(rounds, once)
        call.cancel()
        out.put(None)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--width", type=int, default=2048)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")  # no gRPC object may exist before a fork
    hidden = np.random.default_rng(0).standard_normal((given.tokens, given.width)).astype(np.float32)
    rows = []
    for name, target, arguments in (("raw TCP echo", echo, ()), ("node hop", serve, (given.width,))):
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
        process.start()
        port = ours.recv()
        if target is echo:
            rows.append((name, tcp_times(port, hidden.nbytes, given.rounds)))
        else:
            rows.append((name, node_times(port, hidden, given.rounds)))
        ours.send("end")
        process.join(5)
    print(f"{hidden.nbytes} B each way, {given.rounds} rounds")
    for name, (p50, p99) in rows:
        print(f"{name:<14} p50 {p50:.3f} ms   p99 {p99:.3f} ms")


if __name__ == "__main__":
    main()
