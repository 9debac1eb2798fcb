"""What cables and interfaces may do to discovery: one network twice, and bridges that could close a ring.

Owns the judgement over what the system lists, and the reading of its bridges. Refuses to know sockets.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cluster.places import Interface
from .check import Check, graded

_TWICE = "announcements come twice and traffic may take the slower way: turn one off, such as Wi-Fi beside a cable"
_RING = (
    "where these cables close a ring, or lead twice to one machine, broadcasts go round without end: leave one cable "
    "out, or take the ports out of the bridge (macOS: Settings, Network, Manage Virtual Interfaces)"
)
_LINUX_LINKS = Path("/sys/class/net")
_IFCONFIG_S = 5.0
_SECTION = re.compile(r"^(?=\S+: flags=)", re.MULTILINE)
_MEMBER = re.compile(r"^\s+member: (\S+) flags=\w+<(.*)>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bridge:
    """Ports joined into one network. cabled: those that are hardware and have a live cable; has_stp: whether spanning
    tree keeps rings apart."""

    name: str
    cabled: tuple[str, ...]
    has_stp: bool


def link_checks(interfaces: Sequence[Interface], bridges: Sequence[Bridge]) -> list[Check]:
    """A warning for a network that several interfaces are in, and for each bridge that could close a ring."""
    by: dict[str, set[str]] = {}
    for interface in interfaces:
        for network in interface.networks:
            by.setdefault(network, set()).add(interface.name.partition(":")[0])  # "eth0:1" is eth0 once more
    told = "; ".join(f"{network} by {' and '.join(sorted(names))}" for network, names in by.items())
    is_twice = any(len(names) > 1 for names in by.values())
    checks = [graded("network", "networks", told or "none", warn=_TWICE if is_twice else "")]
    return checks + [_bridge_check(bridge) for bridge in bridges if len(bridge.cabled) > 1]


def _bridge_check(bridge: Bridge) -> Check:
    told = f"joins {', '.join(bridge.cabled)}, {'with' if bridge.has_stp else 'without'} spanning tree"
    return graded("network", f"bridge {bridge.name}", told, warn="" if bridge.has_stp else _RING)


def system_bridges(system: str = sys.platform) -> list[Bridge]:
    """This machine's bridges; none where the system does not tell."""
    return bridges_of_ifconfig(_ifconfig()) if system == "darwin" else bridges_of_sysfs(_LINUX_LINKS)


def _ifconfig() -> str:
    try:
        return subprocess.run(
            ["/sbin/ifconfig"], capture_output=True, text=True, timeout=_IFCONFIG_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def bridges_of_sysfs(links: Path) -> list[Bridge]:
    """Linux's bridges; `links` is /sys/class/net. Ports of containers and virtual machines have no hardware."""
    return [
        Bridge(
            bridge.name,
            tuple(
                port.name
                for port in sorted((bridge / "brif").iterdir())
                if (links / port.name / "device").exists() and _content(links / port.name / "carrier") == "1"
            ),
            _content(bridge / "bridge" / "stp_state") not in ("", "0"),
        )
        for bridge in sorted(links.glob("*"))
        if (bridge / "brif").is_dir()
    ]


def bridges_of_ifconfig(listed: str) -> list[Bridge]:
    """macOS's bridges, from what `ifconfig` prints."""
    sections = {text.partition(":")[0]: text for text in _SECTION.split(listed) if text.strip()}
    active = {name for name, text in sections.items() if re.search(r"^\s+status: active", text, re.MULTILINE)}
    bridges = []
    for name, text in sections.items():
        members = dict(_MEMBER.findall(text))
        cabled = tuple(member for member in members if member in active)
        if members:
            bridges.append(Bridge(name, cabled, all("STP" in members[member].split(",") for member in cabled)))
    return bridges


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an interface that is down tells no carrier; one may go while we look
        return ""
