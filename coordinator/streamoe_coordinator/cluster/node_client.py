"""Single questions to a node: who are you, how far away, which files, which snapshots.

One of the coordinator's two gRPC edges (the other is the stream of steps): gRPC's errors become ours here. Every call
has a deadline. Refuses to know why it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import google_crc32c
import grpc

from streamoe_engine.errors import StreamoeError
from streamoe_node.errors import CredentialsUnusable, NodeUnreachable, ProtocolMismatch, SnapshotUnusable
from streamoe_proto.facts_wire import facts_from_wire
from streamoe_proto.messages import NodeFacts
from streamoe_proto.v1 import node_pb2, node_pb2_grpc, snapshot_pb2, snapshot_pb2_grpc
from streamoe_proto.wire import WireError

from .access import Access
from .places import Place
from .stream_watch import watched

DEFAULT_TIMEOUT_S = 5.0
_IDLE_S = 30.0  # a stream of chunks that stands still for so long is dead


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a node's model folder: its name in the folder, with slashes."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RemoteSnapshot:
    """A snapshot of a session's state in a node's band, on the node's disk."""

    snapshot_id: str
    session: str
    position: int
    prefix_hash: bytes
    num_bytes: int
    fingerprint: str


class NodeClient:
    """One node at one place. Use as a context manager. Safe from several threads."""

    def __init__(self, access: Access, place: Place) -> None:
        """Raises what Access.door raises."""
        self.place = place
        self._access, self._door = access, access.door(place)
        self._channel = access.channel(self._door)
        self._node = node_pb2_grpc.NodeServiceStub(self._channel)
        self._snapshots = snapshot_pb2_grpc.SnapshotServiceStub(self._channel)

    def facts(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> NodeFacts:
        """What the node tells of itself.

        Raises NodeUnreachable, ProtocolMismatch, and CredentialsUnusable when it has another id than its certificate.
        """
        with self._told("GetInfo"):
            info = self._node.GetInfo(node_pb2.GetInfoRequest(), timeout=timeout_s).info
            facts = facts_from_wire(info)
        if self._door.node_id is not None and facts.node_id != self._door.node_id:
            raise CredentialsUnusable(
                f"{self.place} calls itself {facts.node_id}, its certificate is of {self._door.node_id}",
                "pair that node again: streamoe-node pair",
            )
        return facts

    def probe_s(self, num_bytes: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> float:
        """Seconds on the way for num_bytes there and as many back. Raises NodeUnreachable."""
        request = node_pb2.ProbeRequest(data=bytes(num_bytes))
        start_s = time.perf_counter()
        with self._told("Probe"):
            answer = self._node.Probe(request, timeout=timeout_s)
        passed_s = time.perf_counter() - start_s
        if len(answer.data) != num_bytes:
            raise ProtocolMismatch(f"{self.place} sent {len(answer.data)} of {num_bytes} B back", _SAME_VERSION)
        return max(1e-6, passed_s - max(0, answer.answered_us - answer.received_us) / 1e6)

    def clock_s(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> float:
        """The node's clock, seconds since 1970. Raises NodeUnreachable."""
        with self._told("Probe"):
            return self._node.Probe(node_pb2.ProbeRequest(), timeout=timeout_s).received_us / 1e6

    def files(self, *, everything: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[str, list[RemoteFile]]:
        """The model's fingerprint, and the files the node's band needs, or all that it has. Raises NodeUnreachable."""
        with self._told("ListFiles"):
            answer = self._snapshots.ListFiles(snapshot_pb2.ListFilesRequest(all=everything), timeout=timeout_s)
        return answer.fingerprint, [RemoteFile(file.path, file.num_bytes, file.sha256) for file in answer.files]

    def read_file(self, name: str, offset: int = 0) -> Iterator[bytes]:
        """The bytes of a file from `offset` on. Raises NodeUnreachable when the stream dies or a chunk is damaged."""
        request = snapshot_pb2.FetchFileRequest(path=name, offset=offset)
        with self._told("FetchFile"):
            stream = self._snapshots.FetchFile(request)
            for message in watched(stream, _IDLE_S):
                yield _checked(message.chunk, offset, self.place)
                offset += len(message.chunk.data)

    def snapshots(self, session: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> list[RemoteSnapshot]:
        """The snapshots of a session, or of all, that the node has. Raises NodeUnreachable."""
        with self._told("List"):
            answer = self._snapshots.List(snapshot_pb2.ListRequest(session=session), timeout=timeout_s)
        return [_snapshot(header) for header in answer.snapshots]

    def fetch_snapshot(self, snapshot_id: str) -> Iterator[bytes]:
        """A snapshot's bytes. Raises NodeUnreachable when the stream dies or a chunk is damaged."""
        offset = 0
        with self._told("Fetch"):
            stream = self._snapshots.Fetch(snapshot_pb2.FetchRequest(snapshot_id=snapshot_id))
            for message in watched(stream, _IDLE_S):
                if not message.HasField("chunk"):
                    continue
                yield _checked(message.chunk, offset, self.place)
                offset += len(message.chunk.data)

    def store_snapshot(self, snapshot: RemoteSnapshot, chunks: Iterable[bytes | memoryview], timeout_s: float) -> None:
        """Give the node a snapshot to keep; snapshot_id is the node's to choose. Raises NodeUnreachable, and what
        `chunks` raises."""

        def messages() -> Iterator[snapshot_pb2.StoreRequest]:
            header = snapshot_pb2.SnapshotHeader(
                session=snapshot.session,
                position=snapshot.position,
                prefix_hash=snapshot.prefix_hash,
                num_bytes=snapshot.num_bytes,
                fingerprint=snapshot.fingerprint,
            )
            yield snapshot_pb2.StoreRequest(header=header)
            offset = 0
            for chunk in chunks:
                data = bytes(chunk)
                told = snapshot_pb2.Chunk(offset=offset, crc32c=google_crc32c.value(data), data=data)
                yield snapshot_pb2.StoreRequest(chunk=told)
                offset += len(data)

        with self._told("Store"):
            self._snapshots.Store(messages(), timeout=timeout_s)

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            self._access.forget(self.place)
            raise _mapped(error, self.place, what) from error
        except WireError as error:
            raise ProtocolMismatch(f"{self.place} answers {what} with nonsense: {error}", _SAME_VERSION) from error


_REFUSALS = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
_SAME_VERSION = "install the same version of streamoe on both machines"


def _snapshot(header: snapshot_pb2.SnapshotHeader) -> RemoteSnapshot:
    return RemoteSnapshot(
        header.snapshot_id, header.session, header.position, header.prefix_hash, header.num_bytes, header.fingerprint
    )


def _checked(chunk: snapshot_pb2.Chunk, offset: int, place: Place) -> bytes:
    if chunk.offset != offset or google_crc32c.value(chunk.data) != chunk.crc32c:
        raise NodeUnreachable(
            f"{place} sent a damaged chunk at {offset}: the line changes bits", "check the cable, then try again"
        )
    return chunk.data


def _mapped(error: grpc.RpcError, place: Place, what: str) -> StreamoeError:
    call = cast(Any, error)  # every error of a call is one, though its class does not say so
    code, details = call.code(), call.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ProtocolMismatch(f"{place} does not know {what}", _SAME_VERSION)
    if what in ("Fetch", "Store") and code in _REFUSALS:
        return SnapshotUnusable(f"{place} refuses the snapshot: {details}", "the tokens can be run again")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = "no answer in time"
    if "last error: " in details:  # a chain of wrappings; the system's own words come last
        details = details.rpartition(": ")[2]
    return NodeUnreachable(
        f"{place} does not answer: {details.strip() or code}",
        "is `streamoe-node` running there, and is this its address? `streamoe-coord doctor` tests the network",
    )
