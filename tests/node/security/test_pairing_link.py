"""Pairing over real sockets, and what a certificate is then good for: gRPC over loopback."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from streamoe_node.errors import CredentialsUnusable, NodeUnreachable, PairingFailed, PortInUse
from streamoe_node.security import pairing_link
from streamoe_node.security.authority import Authority, Credentials, Member
from streamoe_node.security.code import OneTimeCode, new_code
from streamoe_node.security.credentials import (
    ask_member,
    channel_credentials,
    check_hello_id,
    expects_node,
    peer_member,
    server_credentials,
)
from streamoe_node.security.folder import (
    has_authority,
    has_credentials,
    load_authority,
    load_credentials,
    save_authority,
    save_credentials,
)
from streamoe_node.security.pairing import CoordinatorPairing
from streamoe_node.security.pairing_link import PairingListener, pair_with
from tests.waiting import eventually

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("home", NOW)


@contextmanager
def waiting_node(code: OneTimeCode, told: list[str]) -> Iterator[tuple[int, list[object]]]:
    """A node that waits to be paired, in a thread: its port, and what came of it."""
    outcome: list[object] = []
    stop = threading.Event()
    with PairingListener("127.0.0.1") as listener:

        def serve() -> None:
            try:
                outcome.append(listener.serve("mini-1", "Mini", code, told.append, stopped=stop.is_set))
            except PairingFailed as error:
                outcome.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.port, outcome
        finally:
            stop.set()
            thread.join(20)
            assert not thread.is_alive()


def dial(port: int, authority: Authority, code: str) -> CoordinatorPairing:
    return pair_with("127.0.0.1", port, lambda channel: CoordinatorPairing(authority, code, channel))


def paired(authority: Authority) -> Credentials:
    code = OneTimeCode(new_code(), time.monotonic)
    with waiting_node(code, []) as (port, outcome):
        assert dial(port, authority, code.code).node_id == "mini-1"
    (credentials,) = outcome
    assert isinstance(credentials, Credentials)
    return credentials


def test_a_wrong_code_then_the_right_one(authority: Authority) -> None:
    code, told = OneTimeCode(new_code(), time.monotonic), []
    with waiting_node(code, told) as (port, outcome):
        with pytest.raises(PairingFailed, match="2 tries left"):
            dial(port, authority, new_code())
        dial(port, authority, code.code)
    assert isinstance(outcome[0], Credentials)
    assert len(told) == 1 and "wrong code" in told[0]


def test_three_wrong_codes_end_the_waiting(authority: Authority) -> None:
    code = OneTimeCode(new_code(), time.monotonic)
    with waiting_node(code, []) as (port, outcome):
        for _ in range(3):
            with pytest.raises(PairingFailed):
                dial(port, authority, new_code())
        with pytest.raises((PairingFailed, NodeUnreachable)):
            dial(port, authority, code.code)
    assert isinstance(outcome[0], PairingFailed)


def test_an_expired_code_ends_the_waiting(authority: Authority) -> None:
    code = OneTimeCode(new_code(), time.monotonic, life_s=0.1)
    with waiting_node(code, []) as (_, outcome):
        eventually(lambda: outcome)
    assert isinstance(outcome[0], PairingFailed) and "expired" in str(outcome[0])


def test_callers_that_talk_nonsense_or_nothing_stop_nobody(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing_link, "_TALK_S", 2.0)
    code, told = OneTimeCode(new_code(), time.monotonic), []
    with waiting_node(code, told) as (port, outcome):
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.settimeout(30)
            assert silent.recv(1) == b""  # it is hung up on
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as huge:
            huge.sendall((2**31).to_bytes(4, "big"))
        monkeypatch.undo()
        dial(port, authority, code.code)
    assert isinstance(outcome[0], Credentials)
    assert len(told) == 3


def test_nobody_there(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NodeUnreachable) as error:
        dial(port, authority, new_code())
    assert error.value.exit_code == 4
    with PairingListener("127.0.0.1") as listener, pytest.raises(PortInUse):
        PairingListener("127.0.0.1", listener.port)


# ---- what the certificates are good for


@contextmanager
def node_server(credentials: Credentials, node_id: str = "mini-1") -> Iterator[int]:
    """A gRPC server that answers /t/who with who calls."""

    def who(_: bytes, context: grpc.ServicerContext) -> bytes:
        member = peer_member(context)
        return f"{member.role}:{member.member_id}".encode() if member else b"nobody"

    handlers = {"who": grpc.unary_unary_rpc_method_handler(who)}
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", handlers),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(credentials, node_id))
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait(5)


def ask(port: int, credentials: grpc.ChannelCredentials | None, node_id: str = "mini-1") -> str:
    target = f"127.0.0.1:{port}"
    if credentials is None:
        channel = grpc.insecure_channel(target)
    else:
        channel = grpc.secure_channel(target, credentials, options=expects_node(node_id))
    with channel:
        return channel.unary_unary("/t/who")(b"", timeout=5).decode()


def test_a_paired_node_works_with_mtls_and_others_do_not(authority: Authority) -> None:
    node = paired(authority)
    coordinator = authority.issue(Member("coordinator", "desk"), NOW)
    stranger = Authority.create("other", NOW).issue(Member("coordinator", "desk"), NOW)
    with node_server(node) as port:
        assert ask(port, channel_credentials(coordinator)) == "coordinator:desk"
        assert ask(port, channel_credentials(node)) == "node:mini-1"
        unpaired = grpc.ssl_channel_credentials(root_certificates=authority.certificate_pem)
        for wrong in (None, unpaired, channel_credentials(stranger)):
            with pytest.raises(grpc.RpcError) as error:
                ask(port, wrong)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError):  # the certificate is another node's than the one that was dialled
            ask(port, channel_credentials(coordinator), node_id="mini-2")
        assert ask_member("127.0.0.1", port, coordinator) == Member("node", "mini-1")
        with pytest.raises(CredentialsUnusable, match="no certificate of this cluster"):
            ask_member("127.0.0.1", port, stranger)


def test_a_node_does_not_serve_with_anothers_certificate(authority: Authority) -> None:
    node = paired(authority)
    with pytest.raises(CredentialsUnusable, match="mini-2"):
        server_credentials(node, "mini-2")
    mixed = Credentials(node.key_pem, node.certificate_pem, Authority.create("other", NOW).certificate_pem)
    with pytest.raises(CredentialsUnusable, match="authority"):
        server_credentials(mixed, "mini-1")
    stolen = Credentials(
        authority.issue(Member("node", "mini-1"), NOW).key_pem, node.certificate_pem, node.authority_pem
    )
    with pytest.raises(CredentialsUnusable, match="another key"):
        channel_credentials(stolen)
    with pytest.raises(CredentialsUnusable):
        check_hello_id("mini-1", "mini-2")


def test_a_coordinators_certificate_cannot_serve(authority: Authority) -> None:
    """Its name is no node's: a client that expects a node does not take it."""
    coordinator = authority.issue(Member("coordinator", "mini-1"), NOW)
    with pytest.raises(CredentialsUnusable, match="coordinator"):
        server_credentials(coordinator, "mini-1")


# ---- files


def test_keys_lie_closed_and_come_back(authority: Authority, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    assert not has_authority(folder) and not has_credentials(folder)
    with pytest.raises(CredentialsUnusable, match="streamoe-coord init"):
        load_authority(folder)
    save_authority(folder, authority)
    credentials = authority.issue(Member("node", "mini-1"), NOW)
    save_credentials(folder, credentials)
    assert load_credentials(folder) == credentials
    assert load_authority(folder).certificate_pem == authority.certificate_pem
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    (folder / "member.key").chmod(0o644)
    with pytest.raises(CredentialsUnusable, match="chmod 600"):
        load_credentials(folder)
    (folder / "member.key").unlink()
    with pytest.raises(CredentialsUnusable, match="cannot be read"):
        load_credentials(folder)
    (folder / "authority.key").write_bytes(b"nonsense")
    with pytest.raises(CredentialsUnusable, match="not readable"):
        load_authority(folder)
