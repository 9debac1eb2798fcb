"""Where a port may be open: loopback always, a private network with credentials, nothing else by accident.

Owns the rule and its words. Refuses to know what listens.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import ExposureRefused

Resolve = Callable[[str], Sequence[str]]
Reach = Literal["machine", "network", "anywhere"]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

INSECURE_WARNING = (
    "--insecure-lan: whoever reaches {host} can read this model's answers, use this machine and stop its work; "
    "pair the node instead (streamoe-coord init, streamoe-node pair)"
)


def check(host: str, *, has_credentials: bool, insecure_lan: bool, resolve: Resolve | None = None) -> str | None:
    """Whether a server may listen at `host`: an address, a name, or a wildcard such as "0.0.0.0" or "[::]".

    Returns a warning to print, or None. A name counts as the most exposed address it stands for; a wildcard as every
    network of this machine. Raises ExposureRefused.
    """
    where = reach(host, resolve)
    if where == "machine" or has_credentials:
        return None
    if not insecure_lan:
        raise ExposureRefused(
            f"{host} can be reached from other machines, and this node has no certificate",
            "pair it (streamoe-coord init on the coordinator, streamoe-node pair here), listen on 127.0.0.1, or on a "
            "private network that you trust add --insecure-lan",
        )
    if where == "anywhere":
        raise ExposureRefused(
            f"--insecure-lan is for a private network's address, and {host} is none",
            "give this machine's private address with --host, such as 192.168.1.20, or pair the node",
        )
    return INSECURE_WARNING.format(host=host)


def reach(host: str, resolve: Resolve | None = None) -> Reach:
    """From where `host` can be reached: this machine alone, a private network, or anywhere (a wildcard too).

    Raises ExposureRefused for a name nobody knows.
    """
    addresses = _addresses(host, resolve or _resolved)
    if all(address.is_loopback for address in addresses):
        return "machine"
    return "network" if all(_is_private(address) for address in addresses) else "anywhere"


def _is_private(address: _Address) -> bool:
    # Link-local counts: Thunderbolt bridges have nothing else. The shared 100.64/10 of carriers and the
    # documentation ranges, which `ipaddress` also calls private, do not.
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return _is_private(address.ipv4_mapped)
    return address.is_loopback or any(
        address.version == network.version and address in network for network in _PRIVATE_NETWORKS
    )


_PRIVATE_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10"),
    )
)


def _addresses(host: str, resolve: Resolve) -> list[_Address]:
    bare = host.removeprefix("[").removesuffix("]")
    if bare in ("", "*"):
        return [ipaddress.ip_address("::")]
    try:
        found = [bare] if _is_address(bare) else list(resolve(bare))
    except OSError as error:
        raise ExposureRefused(
            f"{host} is no address and no known name: {error.strerror or error}", "give an address, such as 127.0.0.1"
        ) from error
    assert found, host
    return [ipaddress.ip_address(address.partition("%")[0]) for address in found]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _resolved(name: str) -> list[str]:
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
