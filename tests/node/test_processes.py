"""Two real nodes on loopback and a raw client: the tokens are those of one band over all layers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from streamoe_proto.channel_options import client_options
from streamoe_proto.facts_wire import facts_from_wire
from streamoe_proto.messages import EMPTY_PREFIX, Checkpoint, Checkpointed, Open, Step, prefix_hash
from streamoe_proto.v1 import events_pb2, events_pb2_grpc, node_pb2, node_pb2_grpc, snapshot_pb2, snapshot_pb2_grpc
from tests.node.processes import Chain, NodeProcess, RawStream, clean_environment
from tests.running import greedy, open_band
from tests.waiting import comes_to

Start = Callable[..., NodeProcess]
PROMPT = [int(token) for token in np.random.default_rng(5).integers(1, 500, 40)]


@pytest.fixture
def start(embedded_folder: Path, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a node of the embedded model."""
    with ExitStack() as nodes:
        yield lambda *arguments, **given: nodes.enter_context(
            NodeProcess(embedded_folder, tmp_path, *arguments, **given)
        )


@pytest.fixture(scope="module")
def expected(embedded_folder: Path) -> list[int]:
    with open_band(embedded_folder, extra_slots=50, backend="auto") as band:
        return greedy(band, PROMPT, 12)


BUDGET = ("--budget", "300MiB", "--ctx", "256")
ROOMY = ("--budget", "900MiB", "--ctx", "2048")
BAND = "streamoe_proto.v1.BandService"


def test_two_bands_say_what_one_says_and_drain(start: Start, expected: list[int], tmp_path: Path) -> None:
    nodes = [start(*BUDGET, "--layers", band) for band in ("0-7", "8-15")]
    ready = [node.event("ready") for node in nodes]
    assert ready[0]["node_id"] != ready[1]["node_id"]
    with nodes[0].channel() as first, nodes[1].channel() as last:
        facts = [
            facts_from_wire(node_pb2_grpc.NodeServiceStub(channel).GetInfo(node_pb2.GetInfoRequest(), timeout=5).info)
            for channel in (first, last)
        ]
        assert [(f.first_layer, f.last_layer, f.num_layers) for f in facts] == [(0, 7, 16), (8, 15, 16)]
        assert facts[0].fingerprint == facts[1].fingerprint and facts[0].state == "ready"
        assert all(sum(row.num_bytes for row in f.plan) == f.cap_bytes == 300 << 20 for f in facts)
        assert all(f.peak_bytes <= f.cap_bytes and f.canary for f in facts)
        chains = [Chain((first, last), facts[0].fingerprint, name) for name in ("one", "two")]
        assert chains[0].greedy(PROMPT, 12) == expected
        assert chains[1].greedy(PROMPT, 12) == expected
        chains[0].streams[0].send(Checkpoint())
        kept = chains[0].streams[0].receive()
        assert isinstance(kept, Checkpointed) and kept.position == len(PROMPT) + 12
        sessions = node_pb2_grpc.NodeServiceStub(last).ListSessions(node_pb2.ListSessionsRequest(), timeout=5).sessions
        assert sorted(session.session for session in sessions) == ["one", "two"]
        chains[1].close()
        for node in nodes:
            node.process.send_signal(signal.SIGTERM)
        assert [node.wait() for node in nodes] == [0, 0], [node.errors for node in nodes]
    for node in nodes:
        node.event("draining")
    # The session that was open when they drained is on both shelves; the closed one is on none.
    snapshots = sorted(path.parent.name for path in tmp_path.glob("cache/streamoe/snapshots/*/*.snapshot"))
    assert len(snapshots) == 2 and len(set(snapshots)) == 2


@pytest.mark.slow
def test_snapshot_moves_to_another_node_and_the_session_goes_on(start: Start, expected: list[int]) -> None:
    whole, other = start(*BUDGET, "--name", "a"), start(*BUDGET, "--name", "b")
    fingerprint = whole.event("ready")["fingerprint"]
    other.event("ready")
    with whole.channel() as here, other.channel() as there:
        chain = Chain((here,), fingerprint)
        assert chain.greedy(PROMPT, 6) == expected[:6]
        chain.streams[0].send(Checkpoint())
        kept = chain.streams[0].receive()
        assert isinstance(kept, Checkpointed)
        fetched = list(snapshot_pb2_grpc.SnapshotServiceStub(here).Fetch(
            snapshot_pb2.FetchRequest(snapshot_id=kept.snapshot_id), timeout=20
        ))  # fmt: skip
        header, chunks = fetched[0].header, [message.chunk for message in fetched[1:]]
        assert header.position == kept.position and sum(len(c.data) for c in chunks) == header.num_bytes
        stub = snapshot_pb2_grpc.SnapshotServiceStub(there)
        damaged = [snapshot_pb2.StoreRequest(header=header), snapshot_pb2.StoreRequest(
            chunk=snapshot_pb2.Chunk(offset=0, crc32c=1, data=b"x"))]  # fmt: skip
        with pytest.raises(grpc.RpcError) as refused:
            stub.Store(iter(damaged), timeout=20)
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS
        whole_snapshot = [snapshot_pb2.StoreRequest(header=header)]
        whole_snapshot += [snapshot_pb2.StoreRequest(chunk=chunk) for chunk in chunks]
        stub.Store(iter(whole_snapshot), timeout=20)
        assert [e.position for e in stub.List(snapshot_pb2.ListRequest(), timeout=5).snapshots] == [kept.position]
        tokens = PROMPT + expected[:6]
        now = prefix_hash(EMPTY_PREFIX, tokens)
        moved = RawStream(there, Open("chat", 2, fingerprint, len(tokens), now))
        assert (moved.ready().position, len(tokens)) == (kept.position, kept.position)
        ids = np.asarray([7], np.int32)
        step = Step(1, len(tokens), ids, "logits", now, prefix_hash(now, [7]))
        moved.send(step)
        result = moved.result()
        chain.streams[0].send(Step(8, len(tokens), ids, "logits", now, prefix_hash(now, [7])))
        assert np.array_equal(result.output, chain.streams[0].result().output)


def test_killed_client_leaves_a_session_that_another_epoch_takes_over(start: Start, expected: list[int]) -> None:
    node = start(*BUDGET)
    fingerprint = node.event("ready")["fingerprint"]
    with node.channel() as channel:
        chain = Chain((channel,), fingerprint)
        chain.run(PROMPT)
        chain.streams[0].hang_up()
    with node.channel() as channel:
        after = prefix_hash(EMPTY_PREFIX, PROMPT)
        again = RawStream(channel, Open("chat", 2, fingerprint, len(PROMPT), after))
        ready = again.ready()
        assert (ready.position, ready.prefix_hash, ready.last_seq) == (len(PROMPT), after, 0)


@pytest.mark.slow
def test_frames_at_the_boundary_pass_and_bad_bytes_are_told(start: Start) -> None:
    node = start(
        "--budget", "900MiB", "--ctx", "2048", "--step-tokens", "2048", "--layers", "8-15", "--max-sessions", "2"
    )
    event = node.event("ready")
    manifest_width = event["max_frame_bytes"] // 2048 // 4
    with node.channel() as channel:
        stream = RawStream(channel, Open("s", 1, event["fingerprint"]))
        stream.ready()
        hidden = np.random.default_rng(0).standard_normal((2048, manifest_width)).astype(np.float32)
        stream.send(Step(1, 0, hidden, "hidden", EMPTY_PREFIX, b"12345678"))
        result = stream.result()
        assert isinstance(result.output, np.ndarray) and result.output.shape == hidden.shape
        stream.send_bytes(b"no frame at all")
        assert stream.failed().code == "bad_frame"
        stream.send(Step(2, 2048, hidden[:1], "hidden", b"12345678", b"12345679"))
        assert "--ctx 2049" in stream.failed().next_step
        stream.close()
        silent = RawStream(channel, None, timeout_s=30)
        start_s = time.monotonic()
        assert list(silent.call) == [] and time.monotonic() - start_s < 15


def test_signal_while_loading_ends_quietly(start: Start) -> None:
    node = start(*BUDGET)
    node.event("loading")
    node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 0 and "Traceback" not in node.errors


@pytest.mark.slow
def test_events_show_plan_and_figures(start: Start) -> None:
    node = start(*BUDGET, "--layers", "0-3")
    node.event("ready")
    with node.channel() as channel:
        stream = events_pb2_grpc.EventsServiceStub(channel).Watch(events_pb2.WatchRequest(), timeout=20)
        first, second = next(stream), next(stream)
        assert sum(row.num_bytes for row in first.plan) == first.cap_bytes and not second.plan
        assert 0 < second.footprint_bytes <= second.peak_bytes <= second.cap_bytes
        assert 800 <= second.since_last_ms <= 5000


@pytest.mark.slow
def test_second_node_on_a_port_and_a_cap_that_is_too_small_are_refused_before_loading(
    start: Start, embedded_folder: Path, tmp_path: Path
) -> None:
    node = start(*BUDGET)
    port = node.event("loading")["address"].rpartition(":")[2]
    command = [sys.executable, "-m", "streamoe_node", "--model", str(embedded_folder), "--no-announce"]
    environment = clean_environment(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=60, env=environment, check=False
        )

    taken = run(*BUDGET, "--port", port)
    assert taken.returncode == 1 and f"127.0.0.1:{port} cannot be listened on" in taken.stderr
    assert "loading" not in taken.stdout and "--port 0" in taken.stderr
    small = run("--budget", "250MiB", "--port", "0")
    assert small.returncode == 3 and "short by" in small.stderr and "--max-sessions 2" in small.stderr
    missing = run("--port", "0")
    assert missing.returncode == 2 and "the smallest that fits is --budget" in missing.stderr
    open_lan = run(*BUDGET, "--port", "0", "--host", "0.0.0.0")
    assert open_lan.returncode == 2 and "no certificate" in open_lan.stderr
    named = run(*BUDGET, "--port", "0", "--layers", "3-99")
    assert named.returncode == 2 and "0-15" in named.stderr


def test_the_cap_that_a_refusal_names_is_enough(start: Start) -> None:
    shape = ("--ctx", "1024", "--layers", "0-7")
    refused = start("--budget", "1MiB", *shape)
    needed_bytes = refused.event("error")["error"]["needed_bytes"]
    assert refused.wait() == 3
    node = start("--budget", f"{needed_bytes + (2 << 20)}B", *shape)  # each start measures its own libraries anew
    assert sum(item["bytes"] for item in node.event("plan")["items"]) == needed_bytes + (2 << 20)


@pytest.mark.slow
def test_drain_over_the_network_and_health(start: Start) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    node = start(*BUDGET)
    node.event("ready")
    with node.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        band = health_pb2.HealthCheckRequest(service="streamoe_proto.v1.BandService")
        comes_to(lambda: health.Check(band, timeout=30).status, health_pb2.HealthCheckResponse.SERVING)
        watch = health.Watch(health_pb2.HealthCheckRequest(service=""), timeout=30)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        node_pb2_grpc.NodeServiceStub(channel).Drain(node_pb2.DrainRequest(), timeout=5)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert node.wait() == 0


def test_probe_echoes(start: Start) -> None:
    node = start(*BUDGET)
    node.event("loading")
    with grpc.insecure_channel(node.address, options=client_options()) as channel:
        stub = node_pb2_grpc.NodeServiceStub(channel)
        assert stub.Probe(node_pb2.ProbeRequest(data=b"abc"), timeout=5, wait_for_ready=True).data == b"abc"
        assert len(stub.Probe(node_pb2.ProbeRequest(echo_bytes=1000), timeout=5).data) == 1000
        assert stub.GetInfo(node_pb2.GetInfoRequest(), timeout=5).info.version
