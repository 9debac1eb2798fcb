"""Network namespaces joined by cables: machines with several interfaces, on one machine. Needs root and `ip netns`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def skip_without_namespaces() -> None:
    """Skip the test, with the reason, where namespaces cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command")
    probe = f"streamoe-probe-{os.getpid()}"
    try:
        _ip("netns", "add", probe)
        _ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made: {error.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace."""

    name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command line begins with to run here."""
        return ("ip", "netns", "exec", self.name)

    def set_link(self, interface: str, state: str) -> None:
        """ "up" or "down", as a cable that is plugged and pulled."""
        _ip("-n", self.name, "link", "set", interface, state)


@contextmanager
def two_machines(num_cables: int) -> Iterator[tuple[Machine, Machine]]:
    """Two namespaces and cables c0, c1, ... between them; cable n has 10.77.n.1 and 10.77.n.2, and fe80 addresses."""
    left, right = (Machine(f"streamoe-{os.getpid()}-{side}") for side in ("l", "r"))
    for machine in (left, right):
        _ip("netns", "add", machine.name)
    try:
        for machine in (left, right):
            _ip("-n", machine.name, "link", "set", "lo", "up")
            # An address is usable at once, not after a second of asking whether somebody else has it.
            for scope in ("all", "default"):
                setting = f"net.ipv6.conf.{scope}.accept_dad=0"
                subprocess.run([*machine.prefix, "sysctl", "-qw", setting], check=True, timeout=20)
        for number in range(num_cables):
            name = f"c{number}"
            _ip("-n", left.name, "link", "add", name, "type", "veth", "peer", "name", name, "netns", right.name)
            for place, machine in enumerate((left, right), 1):
                _ip("-n", machine.name, "addr", "add", f"10.77.{number}.{place}/24", "dev", name)
                machine.set_link(name, "up")
        yield left, right
    finally:
        for machine in (left, right):
            _ip("netns", "del", machine.name)
