"""A gRPC server that answers GetInfo and Probe and nothing else: what finding nodes needs of one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from streamoe_proto.channel_options import server_options
from streamoe_proto.facts_wire import facts_to_wire
from streamoe_proto.messages import NodeFacts
from streamoe_proto.v1 import node_pb2, node_pb2_grpc


class InfoService(node_pb2_grpc.NodeServiceServicer):
    """Tells `facts`, after `delay_s`. The other calls are not implemented."""

    def __init__(self, facts: NodeFacts) -> None:
        self.facts, self.delay_s, self.num_asked = facts, 0.0, 0

    def GetInfo(self, request: Any, context: Any) -> node_pb2.GetInfoResponse:
        self.num_asked += 1
        time.sleep(self.delay_s)
        return node_pb2.GetInfoResponse(info=facts_to_wire(self.facts))

    def Probe(self, request: node_pb2.ProbeRequest, context: Any) -> node_pb2.ProbeResponse:
        now_us = time.time_ns() // 1000
        return node_pb2.ProbeResponse(data=request.data, received_us=now_us, answered_us=now_us)

    def Drain(self, request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "")

    def ListSessions(self, request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "")


@contextmanager
def serving(
    facts: NodeFacts, *, host: str = "127.0.0.1", port: int = 0, credentials: grpc.ServerCredentials | None = None
) -> Iterator[tuple[int, InfoService]]:
    """A running server: its port and its service."""
    service = InfoService(facts)
    server = grpc.server(ThreadPoolExecutor(4), options=server_options())
    node_pb2_grpc.add_NodeServiceServicer_to_server(service, server)
    address = f"{host}:{port}"
    bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    try:
        yield bound, service
    finally:
        server.stop(0).wait(5)
