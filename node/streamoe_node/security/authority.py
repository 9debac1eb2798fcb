"""The cluster's certificate authority: one key that says who belongs.

Owns the form of certificates: EC P-256; a node's has the SAN urn:streamoe:node:<id> and the DNS name <id>, a
coordinator's urn:streamoe:coordinator:<id>. Addresses are not in them, for they change. Refuses to know files
(folder.py) and how a request came here (pairing.py).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import CredentialsUnusable

Role = Literal["node", "coordinator"]
URN_PREFIX = "urn:streamoe:"
AUTHORITY_LIFE, MEMBER_LIFE = timedelta(days=3650), timedelta(days=730)
# Clocks of home machines disagree, and a certificate must be good where it arrives.
CLOCK_SKEW = timedelta(days=1)
# What may stand in a DNS name; grpc compares it with the name it was told to expect.
_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Member:
    """Who a certificate speaks for."""

    role: Role
    member_id: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """One member's key and certificate and its authority's certificate, PEM."""

    key_pem: bytes
    certificate_pem: bytes
    authority_pem: bytes

    @property
    def member(self) -> Member:
        """Whom these speak for. Raises CredentialsUnusable."""
        return member_of(self.certificate_pem)


class Authority:
    """The authority itself, with its private key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key, self._certificate = key, certificate

    @classmethod
    def create(cls, cluster_id: str, now: datetime) -> Authority:
        """A new authority; `cluster_id` is only its certificate's name. now: aware, UTC."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"streamoe cluster {cluster_id}")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> Authority:
        """From PEM. Raises CredentialsUnusable for anything that is no such pair."""
        key = _load_key(key_pem)
        certificate = load_certificate(certificate_pem)
        if certificate.public_key() != key.public_key():
            raise CredentialsUnusable("the authority's key and certificate do not belong together", _INIT_AGAIN)
        return cls(key, certificate)

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate, what every member trusts."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key. Whoever has it can admit nodes."""
        return _key_pem(self._key)

    def sign(self, request_pem: bytes, member: Member, now: datetime) -> bytes:
        """The certificate (PEM) for a signing request: its public key, and the name that *we* say; nothing else of
        the request counts. Raises CredentialsUnusable for a request that is none, or an id that cannot be a name.
        """
        try:
            request = x509.load_pem_x509_csr(request_pem)
        except ValueError as error:
            raise CredentialsUnusable("the signing request is not readable", "start the pairing again") from error
        public_key = request.public_key()
        if not request.is_signature_valid or not isinstance(public_key, ec.EllipticCurvePublicKey):
            raise CredentialsUnusable("the signing request is not signed by its own key", "start the pairing again")
        return self._certify(public_key, member, now).public_bytes(serialization.Encoding.PEM)

    def issue(self, member: Member, now: datetime) -> Credentials:
        """A new key with its certificate, for a member on this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certify(key.public_key(), member, now)
        return Credentials(_key_pem(key), certificate.public_bytes(serialization.Encoding.PEM), self.certificate_pem)

    def _certify(self, public_key: ec.EllipticCurvePublicKey, member: Member, now: datetime) -> x509.Certificate:
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(member_urn(member))]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if member.role == "node":
            names.append(x509.DNSName(member.member_id))
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, member.member_id)])
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(min(now + MEMBER_LIFE, self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(authority_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def new_request(member_id: str) -> tuple[bytes, bytes]:
    """A new private key and a signing request for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, member_id)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return _key_pem(key), request.public_bytes(serialization.Encoding.PEM)


def check_issued(credentials: Credentials, member: Member, now: datetime) -> None:
    """Raises CredentialsUnusable unless the certificate is for this key and member, by this authority, and now."""
    certificate = load_certificate(credentials.certificate_pem)
    authority = load_certificate(credentials.authority_pem)
    if _load_key(credentials.key_pem).public_key() != certificate.public_key():
        raise CredentialsUnusable("the certificate is for another key", _PAIR_AGAIN)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise CredentialsUnusable("the certificate is not by this cluster's authority", _PAIR_AGAIN) from error
    if member_of(credentials.certificate_pem) != member:
        found = member_of(credentials.certificate_pem)
        raise CredentialsUnusable(
            f"the certificate is for the {found.role} {found.member_id}, not for the {member.role} {member.member_id}",
            _PAIR_AGAIN,
        )
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise CredentialsUnusable(
            f"the certificate is good from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}, and this machine's clock says {now:%Y-%m-%d}",
            f"set the clock, or {_PAIR_AGAIN}",
        )


def member_of(certificate_pem: bytes) -> Member:
    """Whom a certificate speaks for, by its URN; the signature is not looked at. Raises CredentialsUnusable."""
    certificate = load_certificate(certificate_pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    for urn in names.get_values_for_type(x509.UniformResourceIdentifier):
        member = member_from_urn(urn)
        if member is not None:
            return member
    raise CredentialsUnusable("the certificate names no streamoe member", _PAIR_AGAIN)


def member_urn(member: Member) -> str:
    """ "urn:streamoe:node:<id>". Raises CredentialsUnusable for an id that cannot stand in a name."""
    if not _ID.fullmatch(member.member_id):
        raise CredentialsUnusable(
            f"'{member.member_id[:80]}' cannot be an id in a certificate",
            "use lower-case letters, digits and hyphens, at most 63",
        )
    return f"{URN_PREFIX}{member.role}:{member.member_id}"


def member_from_urn(urn: str) -> Member | None:
    """The member of "urn:streamoe:<role>:<id>", None for any other text."""
    role, _, member_id = urn.removeprefix(URN_PREFIX).partition(":")
    if not urn.startswith(URN_PREFIX) or not _ID.fullmatch(member_id):
        return None
    if role == "node":
        return Member("node", member_id)
    return Member("coordinator", member_id) if role == "coordinator" else None


def cluster_hash(authority_pem: bytes) -> str:
    """16 letters that stand for a cluster, for people and announcements; no secret, and no proof."""
    der = load_certificate(authority_pem).public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(der).hexdigest()[:16]


def load_certificate(pem: bytes) -> x509.Certificate:
    """A certificate from PEM. Raises CredentialsUnusable."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CredentialsUnusable("a certificate is not readable", _PAIR_AGAIN) from error


_PAIR_AGAIN = "pair again: streamoe-node pair"
_INIT_AGAIN = "make a new cluster: streamoe-coord init --force, then pair every node again"


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise CredentialsUnusable("a private key is not readable", _PAIR_AGAIN) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CredentialsUnusable("a private key is not of an elliptic curve", _PAIR_AGAIN)
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
