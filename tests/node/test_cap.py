"""A node lives within its cap by the kernel's count while every row of its plan for the network is in use at once."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from streamoe_engine.sizes import MIB, format_size
from streamoe_proto.messages import EMPTY_PREFIX, Checkpoint, Checkpointed, Open, Step
from streamoe_proto.v1 import snapshot_pb2, snapshot_pb2_grpc
from tests.cgroup import Cgroup, unavailable_reason
from tests.node.processes import NodeProcess, RawStream

pytestmark = [
    pytest.mark.cgroup,
    pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or ""),
]
SESSIONS, TOKENS, ROUNDS = 4, 2048, 3
NETWORK_ROWS = ("frames in flight", "kept results", "snapshot buffer", "gRPC and mDNS")


def talk(stream: RawStream, width: int, trouble: list[BaseException]) -> None:
    """Two of the largest steps in flight, a few times, then a checkpoint of the full context."""
    try:
        hidden = np.random.default_rng(1).standard_normal((TOKENS, width)).astype(np.float32)
        seq = 0
        for _ in range(ROUNDS):
            for _ in range(2):
                seq += 1
                stream.send(Step(seq, 0, hidden, "hidden", EMPTY_PREFIX, b"12345678"))
            for _ in range(2):
                stream.result()
        stream.send(Checkpoint())
        kept = stream.receive()
        assert isinstance(kept, Checkpointed) and kept.position == TOKENS
    except BaseException as error:  # noqa: BLE001 - shown by the test's thread
        trouble.append(error)


@pytest.mark.slow
def test_four_sessions_with_the_largest_frames_stay_under_the_smallest_cap(
    embedded_folder: Path, tmp_path: Path
) -> None:
    shape = ["--ctx", TOKENS, "--step-tokens", TOKENS, "--layers", "1-2"]
    with NodeProcess(embedded_folder, tmp_path, "--budget", "1MiB", *shape) as refused:
        budget = refused.event("error")["error"]["needed_bytes"] + MIB
        assert refused.wait() == 3
    flags = ["--budget", f"{budget}B", *shape]
    with ExitStack() as things:
        group = things.enter_context(Cgroup(None))
        node = things.enter_context(NodeProcess(embedded_folder, tmp_path, *flags, argv=group.command([])))
        plan, ready = node.event("plan"), node.event("ready")
        channels = [things.enter_context(node.channel()) for _ in range(SESSIONS)]
        streams = [
            RawStream(channel, Open(f"s{number}", 1, ready["fingerprint"]), timeout_s=120)
            for number, channel in enumerate(channels)
        ]
        for stream in streams:
            stream.ready()
        before = group.memory().usage_bytes
        trouble: list[BaseException] = []
        width = ready["max_frame_bytes"] // 4 // TOKENS
        talkers = [threading.Thread(target=talk, args=(stream, width, trouble)) for stream in streams]
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.join()
        assert trouble == []
        stub = snapshot_pb2_grpc.SnapshotServiceStub(channels[0])
        for snapshot in stub.List(snapshot_pb2.ListRequest(), timeout=10).snapshots:
            for _ in stub.Fetch(snapshot_pb2.FetchRequest(snapshot_id=snapshot.snapshot_id), timeout=20):
                pass
        memory = group.memory()
        rows = {item["name"]: item["bytes"] for item in plan["items"]}
        used = memory.peak_bytes - before
        shown = ", ".join(f"{name} {format_size(rows[name])}" for name in NETWORK_ROWS)
        print(f"before {format_size(before)}, peak {format_size(memory.peak_bytes)}; {shown}; used {format_size(used)}")
        assert memory.peak_bytes <= budget, f"{format_size(memory.peak_bytes)} of {format_size(budget)}"
        assert memory.oom_kills == 0
