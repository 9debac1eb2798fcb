"""From flags to nodes: who is looked for, how they may be spoken to, and the discovery that runs meanwhile.

Owns the order in which these are opened and closed. Refuses to know what is done with the nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .cluster.access import Access
from .cluster.addresses import LastKnown
from .cluster.bonjour import bonjour_if_possible
from .cluster.discovery import AskNodes, Discovery
from .cluster.gathering import Fill, Gathered, Gathering
from .cluster.places import Place, parse_place
from .terminal.style import dim


@dataclass(frozen=True, slots=True)
class LookFlags:
    """What the command line says of nodes. nodes: host:port each, none: whoever announces itself."""

    nodes: tuple[str, ...] = ()
    fingerprint: str | None = None
    insecure_lan: bool = False
    wait_s: float = 20.0

    @property
    def places(self) -> tuple[Place, ...]:
        """The named places. Raises UsageError."""
        return tuple(dict.fromkeys(map(parse_place, self.nodes)))


@dataclass(frozen=True, slots=True)
class Looking:
    """A running discovery."""

    flags: LookFlags
    access: Access
    discovery: Discovery

    def gather(self, tell: Callable[[str], None], fill: Fill | None = None) -> Gathered | None:
        """Wait for nodes that make a model; None when none of that model is around and none was named.

        Raises as Gathering.
        """
        flags = self.flags
        gathering = Gathering(
            self.discovery,
            self.access,
            static=flags.places,
            fingerprint=flags.fingerprint,
            tell=tell,
            fill=fill,
        )
        return gathering.wait(flags.wait_s)


@contextmanager
def looking(flags: LookFlags) -> Iterator[Looking]:
    """Look for nodes until the context ends. Named ones alone, or else by mDNS and where they were last.

    Raises UsageError for an address that is none, CredentialsUnusable for broken credentials.
    """
    places, access = flags.places, Access.of_user(insecure_lan=flags.insecure_lan)
    ask = AskNodes(access)
    start_browser = None if places else bonjour_if_possible
    try:
        with Discovery(ask, static=places, start_browser=start_browser) as discovery:
            if not places:
                discovery.sight(place for known in LastKnown().load().values() for place in known)
            yield Looking(flags, access, discovery)
    finally:
        ask.close()


def tell_on_stderr(line: str) -> None:
    """A dim line beside the output."""
    print(dim(line, sys.stderr), file=sys.stderr, flush=True)


def tell_amid(line: str) -> None:
    """The same in the middle of an answer, which leaves the cursor within a line."""
    lead = "\n" if sys.stdout.isatty() and sys.stderr.isatty() else ""
    print(f"{lead}{dim(line, sys.stderr)}", file=sys.stderr, flush=True)
