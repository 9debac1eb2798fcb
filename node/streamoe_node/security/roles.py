"""What a member of the cluster may ask of a node: nodes copy files from one another, coordinators use sessions.

Owns the list of calls, as a gRPC interceptor. Who a caller is says its certificate; a connection without one is only
possible where the port asks for none. Refuses to know what the calls do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from .credentials import peer_member

# All that touches conversations, or ends the node. The rest is for any member: facts, echo, health, files.
_FOR_COORDINATORS = frozenset(
    {
        "/streamoe_proto.v1.BandService/Run",
        "/streamoe_proto.v1.NodeService/Drain",
        "/streamoe_proto.v1.NodeService/ListSessions",
        "/streamoe_proto.v1.SnapshotService/List",
        "/streamoe_proto.v1.SnapshotService/Fetch",
        "/streamoe_proto.v1.SnapshotService/Store",
    }
)


class CoordinatorsOnly(grpc.ServerInterceptor):
    """For a port that asks for certificates."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler, which looks at its caller first where the call is for coordinators."""
        handler: Any = continuation(handler_call_details)
        if handler is None or handler_call_details.method not in _FOR_COORDINATORS:
            return handler
        make, name = _KINDS[handler.request_streaming, handler.response_streaming]
        guarded = _guarded(getattr(handler, name))
        return make(guarded, handler.request_deserializer, handler.response_serializer)


_KINDS: dict[tuple[bool, bool], tuple[Callable[..., Any], str]] = {
    (False, False): (grpc.unary_unary_rpc_method_handler, "unary_unary"),
    (False, True): (grpc.unary_stream_rpc_method_handler, "unary_stream"),
    (True, False): (grpc.stream_unary_rpc_method_handler, "stream_unary"),
    (True, True): (grpc.stream_stream_rpc_method_handler, "stream_stream"),
}


def _guarded(behaviour: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def run(request: Any, context: grpc.ServicerContext) -> Any:
        member = peer_member(context)
        if member is None or member.role != "coordinator":
            caller = "a caller without a certificate" if member is None else f"the {member.role} {member.member_id}"
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{caller} is no coordinator of this cluster")
        return behaviour(request, context)

    return run
