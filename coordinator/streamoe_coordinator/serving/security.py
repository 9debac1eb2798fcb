"""Who may ask: which Host and Origin, with which key; and what a browser may do with an answer.

Owns the checks before any route and the headers after it. Safe by default: a web page of another site can neither
read from a server on this machine nor make it work. Refuses to know routes.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamoe_engine.errors import UsageError

from .error_bodies import error_body
from .errors import Refused, ServingError, Unauthorized

CSP = (
    "default-src 'self'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_NEEDS_KEY = ("/v1/", "/api/", "/metrics", "/openapi.json")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Access:
    """bound_host: the address the server listens at. other_hosts: names it is also called by. cors_origins: origins
    of pages that may read from it, "*" for all. api_key: None for none.
    """

    bound_host: str
    other_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    api_key: str | None = None

    def check(self) -> None:
        """Raises UsageError for an address that others reach and no key."""
        if not self.is_loopback and self.api_key is None:
            raise UsageError(
                f"--host {self.bound_host} is reached from other machines, and there is no API key",
                "give one in STREAMOE_API_KEY (or --api-key), or leave --host out to serve this machine alone",
            )
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable() and self.api_key):
            raise UsageError("--api-key is empty or has characters that no header can carry", "use letters and digits")

    @property
    def is_loopback(self) -> bool:
        """Whether this machine alone reaches the server."""
        if self.bound_host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.bound_host).is_loopback
        except ValueError:
            return False

    def knows_host(self, host: str) -> bool:
        """Whether a Host header, without its port, is this server's. A name that is not could be any site's, pointed
        at this machine; an address could not."""
        name = host.lower().rstrip(".")
        if name in (*_LOOPBACK_NAMES, self.bound_host.lower(), *(other.lower() for other in self.other_hosts)):
            return True
        if self.is_loopback:
            return False
        own = socket.gethostname().lower()
        return name in (own, own.partition(".")[0], f"{own.partition('.')[0]}.local") or _is_address(name)

    def has_key(self, headers: Headers) -> bool:
        """Whether the request carries the key."""
        if self.api_key is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        # Hashes are of one length, so that the time tells nothing of the key's.
        digests = [hashlib.sha256(key.encode(errors="replace")).digest() for key in (given, self.api_key)]
        return hmac.compare_digest(*digests)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may send requests: this server's own, or one that was named."""
        return "*" in self.cors_origins or origin in self.cors_origins or origin.partition("://")[2] == host


class Guard:
    """ASGI middleware: the checks, then the app, then the headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        error = self._refusal(scope)
        if error is None:
            await self._app(scope, receive, send_guarded)
        else:
            headers = {"www-authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
            response = JSONResponse(error_body(scope["path"], error), error.status, headers)
            await response(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ServingError | None:
        headers, access = Headers(scope=scope), self._access
        host, origin = headers.get("host", ""), headers.get("origin")
        if not access.knows_host(without_port(host)):
            return Refused(
                f"the host '{host[:80]}' is not this server's name",
                "ask it as localhost, or serve with --allow-host NAME",
            )
        if origin is not None and not access.allows_origin(origin, host):
            return Refused(f"pages of {origin[:80]} may not ask this server", "serve with --cors-origin ORIGIN")
        is_preflight = scope["method"] == "OPTIONS" and origin is not None
        if scope["path"].startswith(_NEEDS_KEY) and not is_preflight and not access.has_key(headers):
            return Unauthorized("the API key is missing or wrong", "send it as Authorization: Bearer KEY")
        return None


def without_port(host: str) -> str:
    """The name or address of a Host header."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
