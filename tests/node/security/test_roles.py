"""What nodes may ask of nodes, by their certificates: a real server with the real services' names."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from streamoe_node.security.authority import Authority, Credentials, Member
from streamoe_node.security.credentials import channel_credentials, expects_node, server_credentials
from streamoe_node.security.roles import _FOR_COORDINATORS, CoordinatorsOnly
from streamoe_proto.v1 import band_pb2, events_pb2, node_pb2, snapshot_pb2

NOW = datetime.now(UTC)


def services() -> dict[str, list[Any]]:
    """Every method of the protocol, by service."""
    files = (band_pb2, node_pb2, snapshot_pb2, events_pb2)
    return {s.full_name: list(s.methods) for f in files for s in f.DESCRIPTOR.services_by_name.values()}


def echo(kind: tuple[bool, bool]) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of this kind that answers b"ok"."""
    makers = {
        (False, False): lambda: grpc.unary_unary_rpc_method_handler(lambda _, __: b"ok"),
        (False, True): lambda: grpc.unary_stream_rpc_method_handler(lambda _, __: iter([b"ok"])),
        (True, False): lambda: grpc.stream_unary_rpc_method_handler(lambda _, __: b"ok"),
        (True, True): lambda: grpc.stream_stream_rpc_method_handler(lambda _, __: iter([b"ok"])),
    }
    made: grpc.RpcMethodHandler[Any, Any] = makers[kind]()
    return made


def call(channel: grpc.Channel, path: str, kind: tuple[bool, bool]) -> bytes:
    if kind == (False, False):
        return channel.unary_unary(path)(b"", timeout=10)
    if kind == (False, True):
        return b"".join(channel.unary_stream(path)(b"", timeout=10))
    if kind == (True, False):
        return channel.stream_unary(path)(iter([b""]), timeout=10)
    return b"".join(channel.stream_stream(path)(iter([b""]), timeout=10))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("home", NOW)


@pytest.fixture(scope="module")
def port(authority: Authority) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[CoordinatorsOnly()], options=[("grpc.so_reuseport", 0)])
    for service, methods in services().items():
        handlers = {m.name: echo((m.client_streaming, m.server_streaming)) for m in methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    node = authority.issue(Member("node", "mini-1"), NOW)
    bound = server.add_secure_port("127.0.0.1:0", server_credentials(node, "mini-1"))
    server.start()
    yield bound
    server.stop(0).wait(5)


def channel(port: int, credentials: Credentials) -> grpc.Channel:
    return grpc.secure_channel(f"127.0.0.1:{port}", channel_credentials(credentials), options=expects_node("mini-1"))


def test_coordinators_may_all_and_nodes_may_not_touch_talks(port: int, authority: Authority) -> None:
    everything = {f"/{service}/{m.name}": m for service, methods in services().items() for m in methods}
    assert everything.keys() >= _FOR_COORDINATORS, "a call was renamed"
    node, coordinator = (authority.issue(Member(role, "other"), NOW) for role in ("node", "coordinator"))
    with channel(port, coordinator) as theirs, channel(port, node) as others:
        for path, method in everything.items():
            kind = (method.client_streaming, method.server_streaming)
            assert call(theirs, path, kind) == b"ok"
            if path not in _FOR_COORDINATORS:
                assert call(others, path, kind) == b"ok"
                continue
            with pytest.raises(grpc.RpcError) as error:
                call(others, path, kind)
            assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "the node other is no coordinator" in (error.value.details() or "")
