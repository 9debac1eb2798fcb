"""NodeService: what the node is, an echo, its sessions, and the wish that it ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from streamoe_proto.channel_options import MAX_FRAME_BYTES
from streamoe_proto.facts_wire import facts_to_wire
from streamoe_proto.messages import NodeFacts
from streamoe_proto.v1 import node_pb2, node_pb2_grpc

from ..core import NodeCore


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """Answers from facts and core. drain: asks the process to end."""

    def __init__(
        self,
        facts: Callable[[], NodeFacts],
        core: Callable[[], NodeCore | None],
        drain: Callable[[], None],
        most_echo_bytes: int,
    ) -> None:
        self._facts, self._core, self._drain = facts, core, drain
        self._most_echo_bytes = min(most_echo_bytes, MAX_FRAME_BYTES)

    def GetInfo(  # noqa: N802 (gRPC's name)
        self, request: node_pb2.GetInfoRequest, context: grpc.ServicerContext
    ) -> node_pb2.GetInfoResponse:
        """What the node is now."""
        return node_pb2.GetInfoResponse(info=facts_to_wire(self._facts()))

    def Probe(  # noqa: N802
        self, request: node_pb2.ProbeRequest, context: grpc.ServicerContext
    ) -> node_pb2.ProbeResponse:
        """The data back, or as many zeros as asked for, at most a frame."""
        received_us = time.time_ns() // 1000
        data = bytes(min(request.echo_bytes, self._most_echo_bytes)) if request.echo_bytes else request.data
        return node_pb2.ProbeResponse(data=data, received_us=received_us, answered_us=time.time_ns() // 1000)

    def Drain(  # noqa: N802
        self, request: node_pb2.DrainRequest, context: grpc.ServicerContext
    ) -> node_pb2.DrainResponse:
        """Ask the node to end; it does so when the running step is done."""
        core = self._core()
        self._drain()
        return node_pb2.DrainResponse(num_sessions=len(core.sessions()) if core is not None else 0)

    def ListSessions(  # noqa: N802
        self, request: node_pb2.ListSessionsRequest, context: grpc.ServicerContext
    ) -> node_pb2.ListSessionsResponse:
        """The sessions held now."""
        core = self._core()
        held = core.sessions() if core is not None else ()
        return node_pb2.ListSessionsResponse(
            sessions=[
                node_pb2.SessionInfo(session=name, epoch=epoch, position=position, is_attached=is_attached)
                for name, epoch, position, is_attached in held
            ]
        )
