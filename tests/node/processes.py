"""Real `streamoe-node` processes, and a raw client that speaks to them in frames."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np

from streamoe_proto import wire
from streamoe_proto.channel_options import client_options
from streamoe_proto.messages import (
    EMPTY_PREFIX,
    Close,
    Failed,
    FromNode,
    Open,
    Progress,
    Ready,
    Result,
    Step,
    StepWant,
    ToNode,
    TopWords,
    prefix_hash,
)

RUN = "/streamoe_proto.v1.BandService/Run"
WAIT_S = 60.0


class NodeProcess:
    """One node on loopback. Its JSON lines come through `event`; leaving the context kills what still runs."""

    def __init__(
        self, folder: Path, home: Path, *arguments: object, argv: Sequence[str] = (), **environment: str
    ) -> None:
        command = [*argv, sys.executable, "-m", "streamoe_node", "--model", str(folder), "--json", "--no-announce"]
        self.process = subprocess.Popen(
            [*command, "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean_environment(home), **environment},
        )
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.errors = ""
        self._readers = [threading.Thread(target=read) for read in (self._read_events, self._read_errors)]
        for reader in self._readers:
            reader.start()
        self.address = ""

    def event(self, name: str) -> dict[str, Any]:
        """The next event of that name; others before it are passed over."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            event = self._events.get(timeout=max(0.1, deadline_s - time.monotonic()))
            assert event is not None, f"ended before {name}: {self.errors}"
            self.address = event.get("address", self.address)
            if event["event"] == name:
                return event

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options=client_options())

    def wait(self, timeout_s: float = WAIT_S) -> int:
        return self.process.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)
        for reader in self._readers:
            reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line


def clean_environment(home: Path) -> dict[str, str]:
    """This process's, with folders of its own and without the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMOE_")}
    return {**kept, "XDG_CONFIG_HOME": str(home / "config"), "XDG_CACHE_HOME": str(home / "cache")}


class RawStream:
    """One stream of steps, by hand. Frames are bytes on gRPC's side and values on ours."""

    def __init__(self, channel: grpc.Channel, open_: Open | None, timeout_s: float = WAIT_S) -> None:
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(RUN, request_serializer=None, response_deserializer=None)
        self.call = call(iter(self._out.get, None), timeout=timeout_s)
        self.progress: list[Progress] = []
        if open_ is not None:
            self.send(open_)

    def send(self, frame: ToNode) -> None:
        self.send_bytes(wire.encode_to_node(frame))

    def send_bytes(self, data: bytes) -> None:
        self._out.put(data)

    def receive(self) -> FromNode:
        while True:
            frame = wire.decode_from_node(next(self.call))
            if not isinstance(frame, Progress):
                return frame
            self.progress.append(frame)

    def ready(self) -> Ready:
        frame = self.receive()
        assert isinstance(frame, Ready), frame
        return frame

    def failed(self) -> Failed:
        frame = self.receive()
        assert isinstance(frame, Failed), frame
        return frame

    def result(self) -> Result:
        frame = self.receive()
        assert isinstance(frame, Result), frame
        return frame

    def close(self) -> None:
        """End the session, and wait for the stream's end."""
        self.send(Close())
        for _ in self.call:
            pass
        self._out.put(None)

    def hang_up(self) -> None:
        """As a process that died."""
        self.call.cancel()
        self._out.put(None)


class Chain:
    """A session over several bands: the simplest coordinator there is."""

    def __init__(
        self, channels: Sequence[grpc.Channel], fingerprint: str, session: str = "chat", epoch: int = 1
    ) -> None:
        self.streams = [RawStream(channel, Open(session, epoch, fingerprint)) for channel in channels]
        for stream in self.streams:
            stream.ready()
        self.tokens: list[int] = []
        self._hash, self._seq = EMPTY_PREFIX, 0

    def run(self, tokens: Sequence[int], want: StepWant = "top_k") -> Result:
        """Through all bands; the last band's result."""
        self._seq += 1
        after = prefix_hash(self._hash, tokens)
        inputs: np.ndarray = np.asarray(tokens, dtype=np.int32)
        for stream in self.streams:
            asked: StepWant = want if stream is self.streams[-1] else "hidden"
            stream.send(Step(self._seq, len(self.tokens), inputs, asked, self._hash, after, top_k=4))
            result = stream.result()
            if asked == "hidden":
                assert isinstance(result.output, np.ndarray)
                inputs = result.output
        self.tokens += tokens
        self._hash = after
        return result

    def greedy(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        chosen: list[int] = []
        result = self.run(prompt)
        while len(chosen) < num_tokens:
            assert isinstance(result.output, TopWords)
            chosen.append(int(result.output.ids[0]))
            result = self.run(chosen[-1:])
        return chosen

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


def frames_of(stream: RawStream) -> Iterator[FromNode]:
    for data in stream.call:
        yield wire.decode_from_node(data)
