"""Telling the network that this node is here, by Bonjour on every interface that is up.

Owns zeroconf's objects and the one thread that uses them. An announcement is a hint where to look, never a sign of
life. A machine without multicast is told so once, in the log: coordinators can be given the address. Refuses to know
what the node does.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

import ifaddr
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceInfo, Zeroconf

from streamoe_proto.announcement import SERVICE_TYPE, Announcement
from streamoe_proto.messages import NodeState

_POLL_S = 2.0
_log = logging.getLogger(__name__)


def reachable_addresses(host: str) -> tuple[str, ...]:
    """Under which addresses a server that listens at `host` is reached: itself, or for a wildcard this machine's; its
    loopback only where there is nothing else.
    """
    bare = host.removeprefix("[").removesuffix("]")
    if bare not in ("", "*", "0.0.0.0", "::"):
        return ("127.0.0.1",) if bare == "localhost" else (bare.partition("%")[0],)
    found = {
        str(ip.ip[0] if isinstance(ip.ip, tuple) else ip.ip) for adapter in ifaddr.get_adapters() for ip in adapter.ips
    }
    if bare == "0.0.0.0":
        found = {address for address in found if ":" not in address}
    outside = {address for address in found if not ipaddress.ip_address(address.partition("%")[0]).is_loopback}
    return tuple(sorted(outside or found))


class Announcer:
    """Announces one node. `tell` and `close` may be called from any thread."""

    def __init__(self, announcement: Announcement, name: str, host: str, port: int) -> None:
        self._announcement, self._name, self._host, self._port = announcement, name, host, port
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="announcer")
        self._thread.start()

    def tell(self, state: NodeState) -> None:
        """The node's state has changed; "busy" is not announced apart from "ready"."""
        shown: NodeState = "ready" if state == "busy" else state
        with self._lock:
            if shown == self._announcement.state:
                return
            self._announcement = replace(self._announcement, state=shown)
        self._wake.set()

    def close(self) -> None:
        """Say farewell and leave the multicast groups."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        addresses = reachable_addresses(self._host)
        try:
            zeroconf = Zeroconf(interfaces=self._interfaces(addresses), ip_version=_version(addresses))
        except OSError as error:
            _log.warning("no mDNS on this machine (%s): give coordinators --node host:%d", error, self._port)
            return
        try:
            self._announce(zeroconf, addresses)
        except (OSError, Error, TimeoutError, RuntimeError) as error:
            _log.warning("announcing by mDNS failed (%s): give coordinators --node host:%d", error, self._port)
        finally:
            zeroconf.close()

    def _announce(self, zeroconf: Zeroconf, addresses: tuple[str, ...]) -> None:
        told = self._current()
        info = self._info(told, addresses)
        zeroconf.register_service(info, allow_name_change=True)
        before = addresses
        while not self._is_closed:
            self._wake.wait(_POLL_S)
            self._wake.clear()
            now, state = reachable_addresses(self._host), self._current()
            # Two equal looks in a row: an interface that comes and goes is left alone until it stays.
            has_moved = now == before and now != addresses
            before = now
            if has_moved and self._is_wildcard:
                zeroconf.update_interfaces(self._interfaces(now), _version(now))
            if has_moved or state != told:
                addresses, told = (now if has_moved else addresses), state
                info = self._info(told, addresses, info.name)
                zeroconf.update_service(info)
        zeroconf.unregister_service(info)

    def _current(self) -> Announcement:
        with self._lock:
            return self._announcement

    @property
    def _is_wildcard(self) -> bool:
        return self._host.strip("[]") in ("", "*", "0.0.0.0", "::")

    def _interfaces(self, addresses: tuple[str, ...]) -> InterfaceChoice | Sequence[str]:
        # A node on loopback alone must not be heard of elsewhere: its address means another machine there.
        return InterfaceChoice.All if self._is_wildcard else list(addresses)

    def _info(self, told: Announcement, addresses: tuple[str, ...], name: str = "") -> ServiceInfo:
        label = f"{self._name.replace('.', '-')[:40]}-{told.node_id[:8]}"
        return ServiceInfo(
            SERVICE_TYPE,
            name or f"{label}.{SERVICE_TYPE}",
            port=self._port,
            properties=told.to_txt(),
            server=f"streamoe-{told.node_id}.local.",
            parsed_addresses=list(addresses),
        )


def _version(addresses: tuple[str, ...]) -> IPVersion:
    kinds = {":" in address for address in addresses}
    if len(kinds) > 1:
        return IPVersion.All
    return IPVersion.V6Only if kinds == {True} else IPVersion.V4Only
