"""What the chain needs of the world: a node to speak to, a clock, help when a node is gone.

Owns these interfaces and the values they speak of. All of the chain's protocol is plain blocking code over them: gRPC
streams and the machine's clock in earnest, an event queue and virtual time in the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streamoe_proto.messages import FromNode, NodeFacts, Open, ToNode


class ChannelLost(Exception):
    """The stream has died, by whatever cause; a new one must be dialled. str(): the cause, a phrase."""


class ChannelTimeout(Exception):
    """Nothing came in the given time. The stream may be as good as before."""


@dataclass(frozen=True, slots=True)
class Target:
    """A node, and where it may answer. name: for messages; addresses: the best first, "host:port" or gRPC's forms."""

    node_id: str
    name: str
    addresses: tuple[str, ...] = ()


class Channel(Protocol):
    """One stream to one node: one session. Frames arrive whole, in order, or not at all."""

    def send(self, frame: ToNode) -> None:
        """Send, without waiting for the peer. Raises ChannelLost."""
        ...

    def receive(self, timeout_s: float) -> FromNode:
        """The next frame. Raises ChannelTimeout, and ChannelLost for a dead stream or a damaged frame."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the stream is known to have died: receive() gives what came before, then raises. Never blocks."""
        ...

    def close(self) -> None:
        """End the stream. Frames sent before still go out where they can. Never blocks, may be called twice."""
        ...


class Dialer(Protocol):
    """Reaches nodes."""

    def dial(self, target: Target, opening: Open, timeout_s: float) -> Channel:
        """A new stream with `opening` sent, at the first address that answers. Raises ChannelLost."""
        ...

    def node_facts(self, target: Target, timeout_s: float) -> NodeFacts:
        """What the node tells of itself now. Raises ChannelLost."""
        ...


class Clock(Protocol):
    """The time that timers go by."""

    def now_s(self) -> float:
        """Seconds since some beginning; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a band is served: the node, what reaches it, and what it told of itself."""

    dialer: Dialer
    target: Target
    facts: NodeFacts

    @property
    def layers(self) -> tuple[int, int]:
        """First and last layer, both included."""
        return self.facts.first_layer, self.facts.last_layer

    def __str__(self) -> str:
        first, last = self.layers
        return f"band {first}-{last} on {self.target.name}"


class Rescue(Protocol):
    """Whom to ask when a band's node is gone. Each answers within a second or so, or as long as `timeout_s`."""

    def find_replacement(self, layers: tuple[int, int], avoid: frozenset[str]) -> Seat | None:
        """Another ready node with exactly these layers, whose node id is not in `avoid`."""
        ...

    def move_snapshot(self, session: str, source: Seat, target: Seat, timeout_s: float) -> bool:
        """Copy the session's snapshot from a node that leaves to another one. False where that did not work."""
        ...

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        """The band opened in this process, where its own plan allows; None where not. May take as long as opening does.

        Raises StreamoeError where it tried and failed.
        """
        ...


class NoRescue:
    """Nobody else has the band: a chain of given nodes."""

    def find_replacement(self, layers: tuple[int, int], avoid: frozenset[str]) -> Seat | None:
        """None."""
        return None

    def move_snapshot(self, session: str, source: Seat, target: Seat, timeout_s: float) -> bool:
        """False."""
        return False

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        """None."""
        return None
