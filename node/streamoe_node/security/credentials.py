"""mTLS for gRPC: what a server demands and shows, what a client demands and shows, and who is at the other end.

Owns the mapping from certificates to gRPC's credentials. Addresses change, so a client expects the node's *id* as the
server's name; a server admits whoever its cluster's authority has signed, and `peer_member` says who that is.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import grpc

from ..errors import CredentialsUnusable, NodeUnreachable
from .authority import Credentials, Member, check_issued, member_from_urn, member_of


def server_credentials(credentials: Credentials, node_id: str) -> grpc.ServerCredentials:
    """For a node's port. Raises CredentialsUnusable unless they are this node's, by their authority, and in date."""
    check_issued(credentials, Member("node", node_id), datetime.now(UTC))
    return grpc.ssl_server_credentials(
        [(credentials.key_pem, credentials.certificate_pem)],
        root_certificates=credentials.authority_pem,
        require_client_auth=True,
    )


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """For dialling nodes. Raises CredentialsUnusable unless they are in date and by their authority."""
    check_issued(credentials, credentials.member, datetime.now(UTC))
    return grpc.ssl_channel_credentials(
        root_certificates=credentials.authority_pem,
        private_key=credentials.key_pem,
        certificate_chain=credentials.certificate_pem,
    )


def expects_node(node_id: str) -> tuple[tuple[str, str], ...]:
    """Channel options: the server must show the certificate of this node, whatever its address."""
    return (("grpc.ssl_target_name_override", node_id), ("grpc.default_authority", node_id))


def peer_member(context: grpc.ServicerContext) -> Member | None:
    """Who calls, by the certificate; None on a connection without one."""
    properties = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    for key in ("peer_uri", "x509_subject_alternative_name"):
        for name in properties.get(key, ()):
            member = member_from_urn(name.decode("utf-8", "replace"))
            if member is not None:
                return member
    return None


def ask_member(host: str, port: int, credentials: Credentials, timeout_s: float = 5.0) -> Member:
    """Whose certificate the server at an address shows, checked against our authority: for addresses typed by hand.

    Raises NodeUnreachable when nobody answers there, CredentialsUnusable when it is no member of this cluster.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the name is what we ask for; the authority's signature is checked
    context.load_verify_locations(cadata=credentials.authority_pem.decode())
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise CredentialsUnusable(
            f"{_shown(host, port)} shows no certificate of this cluster: {error.reason or error}",
            "pair that node (streamoe-node pair there, streamoe-coord pair here)",
        ) from error
    except OSError as error:
        raise NodeUnreachable(
            f"{_shown(host, port)} does not answer: {error.strerror or error}", "is `streamoe-node` running there?"
        ) from error
    assert der is not None
    return member_of(ssl.DER_cert_to_PEM_cert(der).encode())


def check_hello_id(expected: str, told: str) -> None:
    """Raises CredentialsUnusable when a node tells another id than its certificate, or than it was dialled for."""
    if told != expected:
        raise CredentialsUnusable(
            f"the node calls itself {told}, and {expected} was expected here",
            "restart that node, or pair it again: streamoe-node pair",
        )


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
