"""Where a node may be reached: a host and a port, with the interface where the address needs one.

Owns the written form of addresses and what this machine's interfaces mean for them. Refuses to know who answers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import ifaddr

from streamoe_engine.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """host: a name, an IPv4 or IPv6 address; a link-local one has its interface: "fe80::1%en0"."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def grpc_target(self) -> str:
        """For gRPC, which takes an interface's "%c0" for an escaped byte."""
        return str(self).replace("%", "%25")

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, as far as the text says."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False


def parse_place(text: str) -> Place:
    """ "mini.local:7650", "192.168.1.20:7650", "[fe80::1%en0]:7650". Raises UsageError."""
    host, colon, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not bare or not port.isdecimal() or not 0 < int(port) < 65536 or (":" in bare) != is_bracketed:
        raise UsageError(f"'{text}' is not host:port", "for example 192.168.1.20:7650, mini.local:7650 or [::1]:7650")
    address, _, scope = bare.partition("%")
    if is_bracketed:
        try:
            is_link_local = ipaddress.IPv6Address(address).is_link_local
        except ValueError as error:
            raise UsageError(f"'{text}' is no IPv6 address: {error}", "for example [::1]:7650") from error
        if is_link_local and not scope.removeprefix("25"):
            raise UsageError(f"'{text}' needs its interface", f"for example [{address}%en0]:{port}")
    return Place(
        f"{address}%{scope.removeprefix('25') if scope.startswith('25') else scope}" if scope else bare, int(port)
    )


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface that is up and has addresses. networks: those it shares with other machines, such as
    "192.168.1.0/24"; its loopback and link-local ones say nothing of who else is there."""

    name: str
    index: int
    addresses: tuple[str, ...]
    networks: tuple[str, ...] = ()

    @property
    def has_link_local(self) -> bool:
        """Whether it can reach fe80 addresses."""
        return any(address.startswith("fe80:") for address in self.addresses)


def up_interfaces() -> tuple[Interface, ...]:
    """This machine's interfaces with an address, in order of their names."""
    found = []
    for adapter in ifaddr.get_adapters():
        prefixes = {str(ip.ip[0] if isinstance(ip.ip, tuple) else ip.ip): ip.network_prefix for ip in adapter.ips}
        if prefixes:
            networks = {network for address, bits in prefixes.items() for network in _shared_network(address, bits)}
            found.append(
                Interface(adapter.nice_name, adapter.index or 0, tuple(sorted(prefixes)), tuple(sorted(networks)))
            )
    return tuple(sorted(found, key=lambda interface: interface.name))


def _shared_network(address: str, prefix: int) -> list[str]:
    network = ipaddress.ip_interface(f"{address}/{prefix}").network
    is_alone = network.is_loopback or network.is_link_local or network.num_addresses == 1
    return [] if is_alone else [str(network)]


def places_of(addresses: Iterable[str], port: int, interfaces: Iterable[Interface]) -> tuple[Place, ...]:
    """Announced addresses as places. A link-local one is tried on each interface that can reach any: what mDNS says of
    its interface is wrong where a node has two."""
    reach = [interface.name for interface in interfaces if interface.has_link_local]
    places: dict[Place, None] = {}
    for text in addresses:
        bare = text.partition("%")[0]
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            continue
        scopes = [f"{bare}%{name}" for name in reach] if address.version == 6 and address.is_link_local else [bare]
        places.update(dict.fromkeys(Place(host, port) for host in scopes))
    return tuple(places)
