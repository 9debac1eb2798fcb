"""Why nodes are not found: multicast sending, multicast receiving, mDNS itself, and TCP, each by its own test.

Owns the tests' sockets. Refuses to know what nodes are for.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import struct
import time
from collections.abc import Sequence

from zeroconf import Error, InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf

from ..cluster.places import Interface, Place, up_interfaces
from .check import Check, graded
from .links import link_checks, system_bridges

_GROUP, _PORT = "224.0.0.251", 5353
# A port of our own for the echo: on 5353 every resolver of the machine would hear it.
_ECHO_PORT = 5354
_ECHO_S, _MDNS_S, _TCP_S = 1.0, 4.0, 3.0
_FIREWALL = "let the firewall pass UDP port 5353 for Python (macOS: Settings, Network, Firewall), or use --node"
_TEST_TYPE = "_streamoe-doctor._tcp.local."


def network_checks(places: Sequence[Place] = ()) -> list[Check]:
    """Interfaces and bridges, multicast on each, mDNS, and TCP to each of `places`. Takes a few seconds."""
    interfaces = up_interfaces()
    outside = [interface for interface in interfaces if _ipv4(interface)]
    multicast = [check for interface in outside for check in _multicast_checks(interface)]
    links = link_checks(interfaces, system_bridges())
    return [_interfaces_check(interfaces), *links, *multicast, _mdns_check(), *map(_tcp_check, places)]


def _interfaces_check(interfaces: Sequence[Interface]) -> Check:
    told = "; ".join(f"{interface.name} {', '.join(interface.addresses)}" for interface in interfaces)
    others = [i for i in interfaces if not all(a.startswith("127.") or a == "::1" for a in i.addresses)]
    alone = "" if others else "connect a cable or join a network: only this machine itself can be reached"
    return graded("network", "interfaces", told or "none", warn=alone)


def _multicast_checks(interface: Interface) -> list[Check]:
    address = _ipv4(interface)
    try:
        with _multicast_socket(address) as sender:
            sender.sendto(b"streamoe doctor", (_GROUP, _PORT))
    except OSError as error:
        failed = f"sending to {_GROUP}:{_PORT} from {address}: {error.strerror} (errno {error.errno})"
        fix = f"turn multicast on for {interface.name}, or name nodes with --node host:port"
        return [graded("network", f"multicast send, {interface.name}", failed, warn=fix)]
    sent = graded("network", f"multicast send, {interface.name}", f"{address} to {_GROUP}:{_PORT}")
    return [sent, _receive_check(interface, address)]


def _receive_check(interface: Interface, address: str) -> Check:
    name = f"multicast receive, {interface.name}"
    token = secrets.token_bytes(16)
    try:
        with _multicast_socket(address) as sender, _joined_socket(address) as receiver:
            start_s = time.monotonic()
            sender.sendto(token, (_GROUP, _ECHO_PORT))
            while (left_s := start_s + _ECHO_S - time.monotonic()) > 0:
                if select.select([receiver], [], [], left_s)[0] and receiver.recv(64) == token:
                    return graded("network", name, f"heard after {(time.monotonic() - start_s) * 1000:.1f} ms")
    except OSError as error:
        return graded("network", name, f"{error.strerror} (errno {error.errno})", warn=_FIREWALL)
    return graded("network", name, f"what was sent on {address} was not heard within {_ECHO_S:.0f} s", warn=_FIREWALL)


def _multicast_socket(address: str) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    return sender


def _joined_socket(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.bind(("", _ECHO_PORT))
        member = struct.pack("4s4s", socket.inet_aton(_GROUP), socket.inet_aton(address))
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except OSError:
        receiver.close()
        raise
    return receiver


class _Heard(ServiceListener):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self.names.add(name)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self.names.add(name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        return


def _mdns_check() -> Check:
    """Publish a service and find it with another set of sockets."""
    name, heard = f"{secrets.token_hex(6)}.{_TEST_TYPE}", _Heard()
    with contextlib.ExitStack() as open_things:
        try:
            publisher, finder = (Zeroconf(interfaces=InterfaceChoice.All, ip_version=IPVersion.V4Only) for _ in "pf")
        except OSError as error:
            return graded("network", "mDNS", f"cannot be used: {error.strerror}", warn=_FIREWALL)
        open_things.callback(publisher.close)
        open_things.callback(finder.close)
        browser = ServiceBrowser(finder, _TEST_TYPE, heard)
        open_things.callback(browser.cancel)
        start_s = time.monotonic()
        try:
            addresses = [a for interface in up_interfaces() for a in interface.addresses if "." in a]
            publisher.register_service(ServiceInfo(_TEST_TYPE, name, port=9, parsed_addresses=addresses[:1]))
        except (OSError, Error, TimeoutError) as error:
            return graded("network", "mDNS", f"publishing failed: {error}", warn=_FIREWALL)
        while name not in heard.names and time.monotonic() - start_s < _MDNS_S:
            time.sleep(0.05)
    took_s = time.monotonic() - start_s
    if name in heard.names:
        return graded("network", "mDNS", f"a service of this machine found itself in {took_s:.1f} s")
    return graded("network", "mDNS", f"a service published here was not heard in {_MDNS_S:.0f} s", warn=_FIREWALL)


def _tcp_check(place: Place) -> Check:
    name, start_s = f"TCP {place}", time.monotonic()
    try:
        with socket.create_connection((place.host, place.port), timeout=_TCP_S) as connection:
            ours = connection.getsockname()[0]
    except OSError as error:
        why = f"{error.strerror or error} (errno {error.errno})" if error.errno else str(error)
        return graded("network", name, why, fail=_tcp_fix(place, error))
    return graded("network", name, f"connected from {ours} in {(time.monotonic() - start_s) * 1000:.1f} ms")


def _tcp_fix(place: Place, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens there: start streamoe-node on {place.host}, and compare the port it prints"
    if isinstance(error, socket.gaierror):
        return "the name is not known: give the address instead"
    return f"look at the cable, the address and the firewall of {place.host}; another address of it may work"


def _ipv4(interface: Interface) -> str:
    return next((address for address in interface.addresses if "." in address), "")
