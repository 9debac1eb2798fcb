"""Pairing: how a node that shares nothing but a one-time code with its coordinator gets a certificate.

Owns the conversation, sans-IO: four messages over a TLS connection that nobody has authenticated yet.

    node         {node_id, name, nonce}
    coordinator  {nonce, authority, proof}     proof of the code: only then the node says more
    node         {request, proof}              the signing request; its key never leaves the node
    coordinator  {certificate, proof}

Every proof is an HMAC under a key made of the code, over all messages before it and the hash of the TLS server
certificate that its side has seen: what is replayed, or passed on by someone in between, proves nothing. The
coordinator writes the node's id into the certificate. Refuses to know sockets (pairing_link.py) and files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..errors import PairingFailed
from .authority import Authority, Credentials, Member, check_issued, member_urn, new_request
from .code import OneTimeCode, code_key

Message = dict[str, Any]
PAIRING_VERSION = 1
_NONCE_BYTES = 32


@dataclass(slots=True)
class _Transcript:
    """What both sides have said, as one hash, and the key of the code once both nonces are known."""

    channel: bytes
    said: Any = field(default_factory=hashlib.sha256)
    key: bytes = b""

    def hear(self, message: Message) -> None:
        body = json.dumps(message, sort_keys=True).encode()
        self.said.update(len(body).to_bytes(4, "big") + body)

    def proof(self, speaker: str, message: Message) -> str:
        """The proof of a message that is about to be said."""
        body = json.dumps({name: value for name, value in message.items() if name != "proof"}, sort_keys=True).encode()
        text = b"\0".join((speaker.encode(), self.channel.hex().encode(), self.said.hexdigest().encode(), body))
        return hmac.new(self.key, text, hashlib.sha256).hexdigest()

    def is_proved(self, speaker: str, message: Message) -> bool:
        return hmac.compare_digest(self.proof(speaker, message).encode(), _text(message, "proof", 64).encode())


class NodePairing:
    """The node's side of one conversation. channel: SHA-256 of its TLS certificate (DER)."""

    def __init__(self, node_id: str, name: str, code: OneTimeCode, channel: bytes) -> None:
        """Raises CredentialsUnusable for an id that no certificate can carry."""
        self._member, self._name, self._code = Member("node", node_id), name, code
        member_urn(self._member)
        self._transcript = _Transcript(channel)
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._key_pem = self._authority_pem = b""

    def hello(self) -> Message:
        """The first message."""
        message = {
            "version": PAIRING_VERSION,
            "node_id": self._member.member_id,
            "name": self._name,
            "nonce": self._nonce.hex(),
        }
        self._transcript.hear(message)
        return message

    def request(self, answer: Message) -> Message:
        """The signing request, once the coordinator has proved that it knows the code.

        Raises PairingFailed: a wrong code takes one of the tries, and the right one uses it up.
        """
        self._code.take_try()
        nonce = _bytes(answer, "nonce", _NONCE_BYTES)
        self._transcript.key = code_key(self._code.code, self._nonce + nonce)
        if not self._transcript.is_proved("coordinator", answer):
            raise PairingFailed(
                f"the other side typed a wrong code; {self._code.tries_left} tries left", "type the code again there"
            )
        self._code.use()
        self._transcript.hear(answer)
        self._authority_pem = _text(answer, "authority").encode()
        self._key_pem, request_pem = new_request(self._member.member_id)
        message: Message = {"request": request_pem.decode()}
        message["proof"] = self._transcript.proof("node", message)
        self._transcript.hear(message)
        return message

    def finish(self, last: Message, now: datetime) -> Credentials:
        """The node's credentials. Raises PairingFailed or CredentialsUnusable for a certificate that is not for it."""
        if not self._transcript.is_proved("coordinator", last):
            raise PairingFailed("the certificate was changed on its way", "start again: streamoe-node pair")
        credentials = Credentials(self._key_pem, _text(last, "certificate").encode(), self._authority_pem)
        check_issued(credentials, self._member, now)
        return credentials


class CoordinatorPairing:
    """The coordinator's side of one conversation. channel: SHA-256 of the TLS certificate it was shown (DER).

    may_admit: asked with the node's id, before anything is signed; returns why not, or "".
    """

    def __init__(
        self, authority: Authority, code: str, channel: bytes, may_admit: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._authority, self._code, self._may_admit = authority, code, may_admit
        self._transcript = _Transcript(channel)
        self.node_id = self.node_name = ""

    def answer(self, hello: Message) -> Message:
        """The proof of the code. Raises PairingFailed for another version, or a node that is not wanted."""
        if hello.get("version") != PAIRING_VERSION:
            raise PairingFailed(
                f"the node pairs by version {hello.get('version')}, this program by {PAIRING_VERSION}",
                "install the same version of streamoe on both machines",
            )
        self.node_id, self.node_name = _text(hello, "node_id", 63), _text(hello, "name", 255)
        refusal = self._may_admit(self.node_id)
        if refusal:
            raise PairingFailed(refusal)
        self._transcript.hear(hello)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self._transcript.key = code_key(self._code, _bytes(hello, "nonce", _NONCE_BYTES) + nonce)
        return self._said({"nonce": nonce.hex(), "authority": self._authority.certificate_pem.decode()})

    def certificate(self, request: Message, now: datetime) -> Message:
        """The certificate. Raises PairingFailed when the node cannot prove the code, CredentialsUnusable for a
        request or an id that cannot be certified."""
        if not self._transcript.is_proved("node", request):
            raise PairingFailed("the other side is not the node that shows this code", "start again on both machines")
        self._transcript.hear(request)
        member = Member("node", self.node_id)
        signed = self._authority.sign(_text(request, "request").encode(), member, now)
        return self._said({"certificate": signed.decode()})

    def _said(self, message: Message) -> Message:
        message["proof"] = self._transcript.proof("coordinator", message)
        self._transcript.hear(message)
        return message


def _text(message: Message, name: str, most: int = 16384) -> str:
    value = message.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise PairingFailed(f"the other side's message lacks '{name}'", "is there a streamoe of another version?")
    return value


def _bytes(message: Message, name: str, length: int) -> bytes:
    try:
        value = bytes.fromhex(_text(message, name, 2 * length))
    except ValueError:
        value = b""
    if len(value) != length:
        raise PairingFailed(f"the other side's message lacks '{name}'", "is there a streamoe of another version?")
    return value
