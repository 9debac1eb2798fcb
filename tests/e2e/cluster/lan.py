"""Machines on one network, as network namespaces on a bridge of their own: each with an address, mDNS and a cable.

Owns the namespaces, their bridge and what is undone at the end, also after an error. Only root on Linux can make them.
Refuses to know what runs in them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Self

_PREFIX = "10.213.77"


def run_ip(*words: str) -> None:
    """`ip WORDS`. Raises CalledProcessError, with what it said as a note."""
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise


@functools.cache
def unavailable_reason() -> str | None:
    """Why no namespaces can be made here, or None: a text for pytest.skip."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    if missing := [name for name in ("ip", "nsenter") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} not installed"
    try:
        with Lan() as lan:
            lan.machine()
    except subprocess.CalledProcessError as error:
        return f"this kernel makes no namespaces, bridges or cables: {error.stderr.strip()}"
    return None


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace with one interface. cable: the bridge's end of its cable, in the namespace `hub`."""

    name: str
    address: str
    cable: str
    hub: str

    @property
    def argv(self) -> tuple[str, ...]:
        """What goes before a command to run it here."""
        # not `ip netns exec`: that mounts another /sys, and with it other control groups
        return ("nsenter", f"--net=/run/netns/{self.name}", "--")

    def pull_cable(self) -> None:
        """The link goes down; addresses stay, and nobody is told."""
        run_ip("-n", self.hub, "link", "set", self.cable, "down")

    def plug_cable(self) -> None:
        run_ip("-n", self.hub, "link", "set", self.cable, "up")


class Lan:
    """A bridge in a namespace of its own, and machines on it; all gone with the context."""

    def __init__(self) -> None:
        self._tag, self._made = uuid.uuid4().hex[:6], list[str]()
        try:
            self._hub = self._namespace("hub")
            run_ip("-n", self._hub, "link", "add", "lan", "type", "bridge")
            run_ip("-n", self._hub, "link", "set", "lan", "up")
        except BaseException:
            self.close()
            raise

    def machine(self) -> Machine:
        """One more machine on the network."""
        number = len(self._made)
        name, cable, address = self._namespace(f"m{number}"), f"cable{number}", f"{_PREFIX}.{number}"
        peer = ("peer", "name", "eth0", "netns", name)
        run_ip("-n", self._hub, "link", "add", cable, "type", "veth", *peer)
        run_ip("-n", self._hub, "link", "set", cable, "master", "lan", "up")
        run_ip("-n", name, "address", "add", f"{address}/24", "broadcast", "+", "dev", "eth0")
        run_ip("-n", name, "link", "set", "eth0", "up")
        run_ip("-n", name, "link", "set", "lo", "up")
        return Machine(name, address, cable, self._hub)

    def close(self) -> None:
        """Remove the namespaces; bridge and cables go with them."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=20)
        self._made.clear()

    def _namespace(self, part: str) -> str:
        name = f"streamoe-{self._tag}-{part}"
        run_ip("netns", "add", name)
        self._made.append(name)
        return name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
