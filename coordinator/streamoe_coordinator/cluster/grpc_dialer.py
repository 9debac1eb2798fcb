"""Dialling nodes over gRPC: the first of a node's addresses that connects, with whatever credentials fit it.

Owns the streams it has made until they are gone. Each stream has a connection of its own, so that a dead one is not
found again. Refuses to know how addresses were ranked, and what frames mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

import grpc

from streamoe_engine.errors import StreamoeError
from streamoe_proto.messages import NodeFacts, Open

from .access import Access
from .grpc_channel import LINGER_S, GrpcChannel
from .node_client import NodeClient
from .places import Place, parse_place
from .ports import ChannelLost, Target

# An address that is silent leaves at least this share of the time to those after it.
_FAIR_SHARE = 0.5


class GrpcDialer:
    """A Dialer; any thread. Use as a context manager, or call close()."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._streams: set[GrpcChannel] = set()
        self._worked: dict[str, Place] = {}  # node id -> where it answered last

    def dial(self, target: Target, opening: Open, timeout_s: float) -> GrpcChannel:
        """A stream to the node, at the address that worked last, else in their order. Raises ChannelLost."""
        deadline_s = time.monotonic() + timeout_s
        causes: list[str] = []
        places = self._places(target)
        for i, place in enumerate(places):
            left_s = deadline_s - time.monotonic()
            share_s = left_s if i == len(places) - 1 else left_s * _FAIR_SHARE
            try:
                channel = self._connected(place, target, max(0.0, share_s))
            except ChannelLost as error:
                causes.append(f"{place}: {error}")
                continue
            with self._lock:
                self._worked[target.node_id] = place
                stream = GrpcChannel(channel, opening, self._forget)
                self._streams.add(stream)
                if stream.gone.is_set():  # gone before it was added
                    self._streams.discard(stream)
            return stream
        raise ChannelLost("; ".join(causes) or "it has no address")

    def node_facts(self, target: Target, timeout_s: float) -> NodeFacts:
        """What the node tells of itself now. Raises ChannelLost."""
        causes: list[str] = []
        deadline_s = time.monotonic() + timeout_s
        for place in self._places(target):
            try:
                with NodeClient(self._access, place) as client:
                    facts = client.facts(max(0.01, deadline_s - time.monotonic()))
            except StreamoeError as error:
                causes.append(error.message)
                continue
            if facts.node_id == target.node_id:
                return facts
            causes.append(f"{place} is now the node {facts.name}")
        raise ChannelLost("; ".join(causes) or "it has no address")

    def close(self) -> None:
        """Close all streams; wait a moment for their last frames to go out, then cut them."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        deadline_s = time.monotonic() + LINGER_S + 1.0
        for stream in streams:
            stream.gone.wait(max(0.0, deadline_s - time.monotonic()))

    def __enter__(self) -> GrpcDialer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _places(self, target: Target) -> Sequence[Place]:
        places = [parse_place(address) for address in target.addresses]
        worked = self._worked.get(target.node_id)
        return places if worked not in places else [worked, *(place for place in places if place != worked)]

    def _connected(self, place: Place, target: Target, timeout_s: float) -> grpc.Channel:
        try:
            door = self._access.door(place)
        except StreamoeError as error:
            raise ChannelLost(error.message) from None
        if door.node_id not in (None, target.node_id):
            self._access.forget(place)
            raise ChannelLost(f"the node {door.node_id} is there now")
        channel = self._access.channel(door)
        if not _is_ready(channel, timeout_s):
            channel.close()
            self._access.forget(place)
            raise ChannelLost(f"no connection within {timeout_s:.1f} s or refused")
        return channel

    def _forget(self, stream: GrpcChannel) -> None:
        with self._lock:
            self._streams.discard(stream)


def _is_ready(channel: grpc.Channel, timeout_s: float) -> bool:
    """Connect; False when it was refused, or not done in time."""
    settled = threading.Event()
    seen: list[grpc.ChannelConnectivity] = []

    def look(state: grpc.ChannelConnectivity) -> None:
        if state in (
            grpc.ChannelConnectivity.READY,
            grpc.ChannelConnectivity.TRANSIENT_FAILURE,
            grpc.ChannelConnectivity.SHUTDOWN,
        ):
            seen.append(state)
            settled.set()

    channel.subscribe(look, try_to_connect=True)
    settled.wait(timeout_s)
    channel.unsubscribe(look)
    return bool(seen) and seen[0] is grpc.ChannelConnectivity.READY
