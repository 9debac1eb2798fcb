"""A node's gRPC server: bound before anything is loaded, its services, and what health says.

Owns the server and its port. Refuses to know what the node does between binding and closing.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from streamoe_proto.channel_options import server_options
from streamoe_proto.v1 import events_pb2_grpc, node_pb2_grpc, snapshot_pb2_grpc

from .errors import PortInUse
from .security.roles import CoordinatorsOnly
from .services.band import SERVICE, BandService
from .services.events import EventsService
from .services.node import NodeService
from .services.snapshots import SnapshotService

DEFAULT_PORT = 7650
# Beside one stream a session: watchers, health, probes, and a coordinator's new stream while its old one dies.
_SPARE_CALLS = 24


@dataclass(frozen=True, slots=True)
class Services:
    """All that the port serves, beside health."""

    node: NodeService
    band: BandService
    snapshots: SnapshotService
    events: EventsService


class Server:
    """An open port. close() when the node ends."""

    def __init__(
        self,
        services: Services,
        host: str,
        port: int,
        credentials: grpc.ServerCredentials | None,
        max_sessions: int,
        max_frame_bytes: int,
    ) -> None:
        """Raises PortInUse. port 0: a free one."""
        num_calls = 2 * max_sessions + _SPARE_CALLS
        self._pool = ThreadPoolExecutor(num_calls, thread_name_prefix="grpc")
        self._server = grpc.server(
            self._pool,
            handlers=[services.band.handler()],
            interceptors=[] if credentials is None else [CoordinatorsOnly()],
            options=server_options(max_frame_bytes),
            # What is over waits for no thread: it is refused at once.
            maximum_concurrent_rpcs=num_calls,
        )
        node_pb2_grpc.add_NodeServiceServicer_to_server(services.node, self._server)
        snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(services.snapshots, self._server)
        events_pb2_grpc.add_EventsServiceServicer_to_server(services.events, self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._is_serving: bool | None = None
        self.serving(False)
        self.port = self._bind(host, port, credentials)
        self._server.start()

    def serving(self, is_serving: bool) -> None:
        """What health says of "" and of the band's service."""
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            status = health_pb2.HealthCheckResponse
            for name in ("", SERVICE):
                self._health.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    def close(self, grace_s: float) -> None:
        """Take nothing new, let calls end for so long, then cut them."""
        self._health.enter_graceful_shutdown()
        done: threading.Event = self._server.stop(grace_s)
        done.wait(grace_s + 5)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _bind(self, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
        bare = host.removeprefix("[").removesuffix("]")
        bare = "::" if bare in ("", "*") else bare
        address = f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PortInUse(
                f"{address} cannot be listened on: another process has it, or it is no address of this machine",
                "give another --port (--port 0: a free one), or another --host",
            ) from error
