"""A pairing over TLS: the node listens with a certificate made for the moment, the coordinator dials.

Owns sockets, frames (4 bytes of length, then JSON) and their limits; no wait is without a deadline. TLS hides the
conversation; who is there is proved by pairing.py. Refuses to know the messages.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..errors import ClusterError, NodeUnreachable, PairingFailed, PortInUse
from .authority import Credentials
from .code import OneTimeCode
from .pairing import CoordinatorPairing, Message, NodePairing

_MAX_FRAME_BYTES = 64 * 1024
_TALK_S = 15.0  # a whole conversation, so that a silent caller cannot keep the listener


class PairingListener:
    """The node's open port while its code lives. Use as a context manager; `port` is the real one."""

    def __init__(self, host: str = "", port: int = 0) -> None:
        """host "": every network of this machine. Raises PortInUse."""
        try:
            self._socket = _listening(host, port)
        except OSError as error:
            raise PortInUse(
                f"{host or 'this machine'}, port {port} cannot be listened on: {error.strerror}",
                "give another --port, or --port 0 for a free one",
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._context, self._channel = _throwaway_context()

    def serve(
        self, node_id: str, name: str, code: OneTimeCode, tell: Callable[[str], None], *, stopped: Callable[[], bool]
    ) -> Credentials | None:
        """Talk with whoever dials, one after another, until one has paired; None when `stopped`.

        tell: one line about each attempt that failed. The port is closed afterwards. Raises PairingFailed when the
        code is spent.
        """
        with self._socket:
            return self._serve(node_id, name, code, tell, stopped)

    def _serve(
        self, node_id: str, name: str, code: OneTimeCode, tell: Callable[[str], None], stopped: Callable[[], bool]
    ) -> Credentials | None:
        self._socket.settimeout(0.5)
        while not stopped():
            if not code.left_s:
                code.take_try()  # says why it is spent
            try:
                connection, address = self._socket.accept()
            except TimeoutError:
                continue
            try:
                with _secured(connection, self._context) as talk:
                    return _node_talk(talk, NodePairing(node_id, name, code, self._channel))
            except (ClusterError, OSError) as error:
                tell(f"{address[0]}: {error.message if isinstance(error, ClusterError) else error}")
        return None

    def __enter__(self) -> PairingListener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def pair_with(
    host: str, port: int, make: Callable[[bytes], CoordinatorPairing], now: Callable[[], datetime] | None = None
) -> CoordinatorPairing:
    """The coordinator's side with the node that listens there. make: from the channel's hash to the conversation.

    Returns the finished conversation, which knows the node's id and name. Raises NodeUnreachable, PairingFailed,
    CredentialsUnusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nobody has signed the node's certificate yet: the code's proof covers its hash instead.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with (
            socket.create_connection((host, port), timeout=_TALK_S) as plain,
            _Talk(plain, context, is_server=False) as talk,
        ):
            pairing = make(talk.peer_hash())
            talk.send(pairing.answer(talk.receive()))
            talk.send(pairing.certificate(_or_refused(talk), (now or _now)()))
            _or_refused(talk)  # the node has it in its hands
            return pairing
    except (OSError, EOFError) as error:
        raise NodeUnreachable(
            f"no pairing with {host}:{port}: {getattr(error, 'strerror', None) or error or 'it hung up'}",
            "is `streamoe-node pair` still waiting there, and is this the address it shows?",
        ) from error


def _node_talk(talk: _Talk, pairing: NodePairing) -> Credentials:
    talk.send(pairing.hello())
    try:
        talk.send(pairing.request(talk.receive()))
        credentials = pairing.finish(talk.receive(), _now())
    except ClusterError as error:
        talk.send({"refused": error.message})
        raise
    talk.send({"paired": True})
    return credentials


def _or_refused(talk: _Talk) -> Message:
    message = talk.receive()
    if "refused" in message:
        raise PairingFailed(f"the node says: {message['refused']}", "look at the code it shows, and try again")
    return message


class _Talk:
    """One TLS connection, frame by frame, all within _TALK_S."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._deadline_s = time.monotonic() + _TALK_S
        plain.settimeout(_TALK_S)
        self._tls = context.wrap_socket(plain, server_side=is_server)

    def peer_hash(self) -> bytes:
        """SHA-256 of the certificate that the other side has shown."""
        certificate = self._tls.getpeercert(binary_form=True)
        assert certificate is not None
        return hashlib.sha256(certificate).digest()

    def send(self, message: Message) -> None:
        body = json.dumps(message).encode()
        self._in_time().sendall(len(body).to_bytes(4, "big") + body)

    def receive(self) -> Message:
        length = int.from_bytes(self._exactly(4), "big")
        if length > _MAX_FRAME_BYTES:
            raise PairingFailed(f"the other side announces a message of {length} B", "is this a streamoe pairing?")
        try:
            message = json.loads(self._exactly(length))
        except ValueError as error:
            raise PairingFailed("the other side's message is not readable", "is this a streamoe pairing?") from error
        if not isinstance(message, dict):
            raise PairingFailed("the other side's message is not readable", "is this a streamoe pairing?")
        return message

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self._in_time().recv(length - len(data))
            if not piece:
                raise PairingFailed("the other side hung up", "a wrong code, or a stopped program, ends the call")
            data += piece
        return data

    def _in_time(self) -> ssl.SSLSocket:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the pairing took too long")
        self._tls.settimeout(left_s)
        return self._tls

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._tls.close()


@contextmanager
def _secured(plain: socket.socket, context: ssl.SSLContext) -> Iterator[_Talk]:
    with plain, _Talk(plain, context, is_server=True) as talk:
        yield talk


def _listening(host: str, port: int) -> socket.socket:
    bare = host.removeprefix("[").removesuffix("]")
    if not bare and socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    return socket.create_server((bare, port), family=family)


def _throwaway_context() -> tuple[ssl.SSLContext, bytes]:
    # A key and certificate for this listener alone, and the certificate's hash.
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "streamoe pairing")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - timedelta(days=1))
        .not_valid_after(_now() + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    pem, der = serialization.Encoding.PEM, serialization.Encoding.DER
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with tempfile.TemporaryDirectory(prefix="streamoe-") as folder:  # `ssl` takes keys from files only
        path = Path(folder) / "pairing.pem"
        path.touch(mode=0o600)
        path.write_bytes(secret + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context, hashlib.sha256(certificate.public_bytes(der)).digest()


def _now() -> datetime:
    return datetime.now(UTC)
