"""What the network's software costs on this machine: a hop, a walk over many nodes, sessions side by side.

    python bench/wire.py                    all three
    python bench/wire.py --csv              the same as comma-separated values
    python bench/wire.py --nodes 4 --tokens 200

Each node is a process of its own with the real service and core, over a band that computes nothing (or sleeps). The
hop stands beside a raw TCP echo and a bare gRPC stream of the same bytes in the same run, the walk beside as many bare
streams. Goals: a hop of 8 KiB at most 0.35 ms, a walk over
16 nodes at most 5 ms (medians), four sessions over two bands at least 1.8 times one session's throughput.
"""

from __future__ import annotations

import argparse
import csv
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import grpc
import numpy as np

from streamoe_coordinator.cluster.access import Access
from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.grpc_dialer import GrpcDialer
from streamoe_coordinator.cluster.ports import Seat, Target
from streamoe_proto.channel_options import client_options
from streamoe_proto.messages import EMPTY_PREFIX, Open, Ready, Result, Step, prefix_hash
from wire_node import VOCAB, facts_of

NODE = Path(__file__).with_name("wire_node.py")
WIDTH = 2048
_WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. p90 None: a single figure."""

    what: str
    unit: str
    p50: float
    p90: float | None
    goal: str


@contextmanager
def process(*arguments: object) -> Iterator[int]:
    """A node, or the echo; its port."""
    command = [sys.executable, str(NODE), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None and node.stdout is not None
        try:
            yield int(node.stdout.readline())
        finally:
            node.stdin.close()
            try:
                node.wait(10)
            except subprocess.TimeoutExpired:
                node.kill()


def timed(run: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each call, after a few that do not count."""
    seen = []
    for i in range(_WARM_UP + count):
        start = time.perf_counter()
        run()
        if i >= _WARM_UP:
            seen.append(1e3 * (time.perf_counter() - start))
    return seen


def row(what: str, times_ms: Sequence[float], goal: str = "") -> Row:
    """Median and ninth decile."""
    return Row(what, "ms", median(times_ms), quantiles(times_ms, n=10)[-1], goal)


def echo_ms(num_bytes: int, count: int) -> list[float]:
    """Round trips of a raw TCP echo."""
    with process("echo") as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data, room = bytes(num_bytes), bytearray(num_bytes)

        def trip() -> None:
            connection.sendall(data)
            got = 0
            while got < num_bytes:
                got += connection.recv_into(memoryview(room)[got:])

        return timed(trip, count)


def grpc_echo_ms(num_nodes: int, num_bytes: int, count: int) -> list[float]:
    """Round trips through so many gRPC streams one after another, each sending back what comes: the floor of a walk."""
    with ExitStack() as stack:
        streams = [stack.enter_context(_echo_stream()) for _ in range(num_nodes)]
        data = bytes(num_bytes)

        def trip() -> None:
            for sending, answers in streams:
                sending.put(data)
                next(answers)

        return timed(trip, count)


@contextmanager
def _echo_stream() -> Iterator[tuple[queue.SimpleQueue[bytes | None], Iterator[bytes]]]:
    sending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with process("grpc-echo") as port, grpc.insecure_channel(f"127.0.0.1:{port}", client_options()) as channel:
        yield sending, channel.stream_stream("/bench.Echo/Run")(iter(sending.get, None))
        sending.put(None)


def hop_ms(count: int) -> list[float]:
    """Steps of one token through one node's stream: 8 KiB there and back."""
    with process(1, 1, 3, 0.0, WIDTH) as port, GrpcDialer(Access()) as dialer:
        target = Target("layers-1", "layers-1", (f"127.0.0.1:{port}",))
        channel = dialer.dial(target, Open("hop", 1, "null"), 10.0)
        assert isinstance(channel.receive(10.0), Ready)
        inputs = np.ones((1, WIDTH), np.float32)
        done, before = 0, EMPTY_PREFIX

        def trip() -> None:
            nonlocal done, before
            after = prefix_hash(before, [0])
            channel.send(Step(done + 1, done, inputs, "hidden", before, after))
            answer = channel.receive(10.0)
            assert isinstance(answer, Result), answer
            done, before = done + 1, after

        times_ms = timed(trip, count)
        channel.close()
        return times_ms


@contextmanager
def chain_over(num_nodes: int, sleep_s: float) -> Iterator[Chain]:
    """A chain over so many processes, a layer each."""
    with ExitStack() as stack:
        dialer = GrpcDialer(Access())
        seats = []
        for layer in range(num_nodes):
            port = stack.enter_context(process(layer, layer, num_nodes, sleep_s, WIDTH))
            facts = facts_of(layer, layer, num_nodes, WIDTH)
            seats.append(Seat(dialer, Target(facts.node_id, facts.name, (f"127.0.0.1:{port}",)), facts))
        stack.enter_context(dialer)
        yield stack.enter_context(Chain(seats, ChainOptions(words_wanted=1, checkpoint_tokens=None)))


def walk_ms(num_nodes: int, count: int) -> list[float]:
    """A token through all nodes and back, by way of the coordinator."""
    with chain_over(num_nodes, 0.0) as chain:
        state, token = chain.new_state(), np.array([1], np.int32)
        return timed(lambda: chain.run(state, token, "last_logits"), count)


def tokens_per_s(chain: Chain, num_sessions: int, num_tokens: int) -> float:
    """All sessions' tokens, each session on a thread of its own."""
    states = [chain.new_state() for _ in range(num_sessions)]

    def talk(i: int) -> None:
        for n in range(num_tokens):
            chain.run(states[i], np.array([(i + n) % VOCAB], np.int32), "last_logits")

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(num_sessions)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return num_sessions * num_tokens / (time.perf_counter() - start)


def sessions_gain(sleep_s: float, num_tokens: int) -> float:
    """Four sessions' throughput over one's, on two bands that take sleep_s a step."""
    with chain_over(2, sleep_s) as chain:
        tokens_per_s(chain, 1, 5)
        return tokens_per_s(chain, 4, num_tokens) / tokens_per_s(chain, 1, num_tokens)


def measure(arguments: argparse.Namespace) -> list[Row]:
    """All rows."""
    count = arguments.tokens
    num_bytes = 4 * WIDTH
    return [
        row(f"raw TCP echo, {num_bytes} B", echo_ms(num_bytes, count)),
        row(f"bare gRPC echo, {num_bytes} B", grpc_echo_ms(1, num_bytes, count)),
        row(f"hop, {num_bytes} B", hop_ms(count), "<= 0.35"),
        row(f"bare gRPC echo, {arguments.nodes} nodes", grpc_echo_ms(arguments.nodes, num_bytes, count // 4)),
        row(f"walk over {arguments.nodes} nodes", walk_ms(arguments.nodes, count // 4), "<= 5 for 16"),
        Row("4 sessions over 2 bands", "x one", sessions_gain(arguments.sleep_s, 40), None, ">= 1.8"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2000, help="round trips of a hop")
    parser.add_argument("--nodes", type=int, default=16, help="nodes of the walk")
    parser.add_argument("--sleep-s", type=float, default=0.02, help="a step of a band that sleeps")
    parser.add_argument("--csv", action="store_true", help="comma-separated values")
    rows = measure(arguments := parser.parse_args())
    if arguments.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(("what", "unit", "p50", "p90", "goal"))
        writer.writerows(
            (r.what, r.unit, f"{r.p50:.4f}", "" if r.p90 is None else f"{r.p90:.4f}", r.goal) for r in rows
        )
        return
    for r in rows:
        tail = "" if r.p90 is None else f"p90 {r.p90:8.3f}"
        print(f"{r.what:<28} p50 {r.p50:8.3f} {r.unit:<6} {tail:<14} {r.goal}")


if __name__ == "__main__":
    main()
