"""From nodes that are around to the ones that make the model, with the way to each.

Owns the waiting: until the bands are complete, a node that loads is ready, or the time is over. Refuses to know how
nodes are found, chosen and measured; it asks those that do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from streamoe_node.errors import ClusterError, NodesDoNotTile, NodeUnreachable
from streamoe_proto.messages import NodeFacts

from .access import Access
from .addresses import LastKnown, Measured, measure_nodes
from .assembly import Assembly, assemble
from .assembly_words import named
from .discovery import Discovery
from .places import Place
from .ports import Dialer, Seat, Target
from .roster import SeenNode

# mDNS answers within a second or two; who has not been heard by then is not waited for.
FIRST_LOOK_S = 3.0
# A node that loads gets this long, whatever --wait says: it is on its way.
LOADING_S = 300.0
_GRACE_S = 0.3
_POLL_S = 0.2
_UNMEASURED_LAYER_S = 0.001

# From the ready nodes of the model to a band of this process that completes them, or None.
Fill = Callable[[Sequence[NodeFacts]], Seat | None]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The nodes that make the model, and where each answers, the best address first. here: a band of this process
    among them."""

    assembly: Assembly
    addresses: dict[str, tuple[Measured, ...]]
    here: Seat | None = None

    def seats(self, dialer: Dialer) -> tuple[Seat, ...]:
        """The chain's seats, in layer order."""
        return tuple(self._seat(dialer, facts) for facts in self.assembly.bands)

    def _seat(self, dialer: Dialer, facts: NodeFacts) -> Seat:
        if self.here is not None and facts.node_id == self.here.facts.node_id:
            return self.here
        return seat_of(dialer, facts, [entry.place for entry in self.addresses[facts.node_id]])


def seat_of(dialer: Dialer, facts: NodeFacts, places: Sequence[Place]) -> Seat:
    """A node's seat."""
    return Seat(dialer, Target(facts.node_id, facts.name, tuple(map(str, places))), facts)


class Gathering:
    """Waits for nodes. tell: a line for the user when what is missing changes."""

    def __init__(
        self,
        discovery: Discovery,
        access: Access,
        *,
        static: Sequence[Place] = (),
        fingerprint: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
        last_known: LastKnown | None = None,
        fill: Fill | None = None,
    ) -> None:
        self._discovery, self._access, self._static = discovery, access, tuple(static)
        self._fingerprint, self._tell = fingerprint, tell
        self._last_known, self._fill = last_known or LastKnown(), fill
        self._told = ""

    def wait(self, timeout_s: float) -> Gathered | None:
        """The nodes once they make a model; None when none of the wanted model is around and none was named.

        Raises NodeUnreachable for named nodes that do not answer, else what `assemble` raises when time is over.
        """
        start_s = time.monotonic()
        while True:
            nodes = self._discovery.nodes()
            waited_s = time.monotonic() - start_s
            try:
                assembly = choose(nodes, self._fingerprint)
            except ClusterError as error:
                if self._is_over(nodes, waited_s, timeout_s):
                    return self._filled(nodes, error)
                self._say(nodes, error)
            else:
                # A better choice may be one answer away.
                if self._discovery.is_settled or waited_s > timeout_s:
                    return self._with_addresses(assembly, nodes)
            time.sleep(_POLL_S if waited_s > _GRACE_S else _GRACE_S / 6)

    def _is_over(self, nodes: Sequence[SeenNode], waited_s: float, timeout_s: float) -> bool:
        mine = self._of_model(nodes)
        if any(seen.facts.state in ("loading", "selftest") for seen in mine):
            return waited_s > max(timeout_s, LOADING_S)
        if not mine and not self._static:
            return waited_s > min(timeout_s, FIRST_LOOK_S)
        return waited_s > timeout_s

    def _filled(self, nodes: Sequence[SeenNode], error: ClusterError) -> Gathered | None:
        """What is there with what this process adds; None when nothing is there."""
        mine = [seen.facts for seen in self._of_model(nodes) if seen.facts.state in ("ready", "busy")]
        here = self._fill(mine) if mine and self._fill and isinstance(error, NodesDoNotTile) else None
        if here is None:
            self._raise_unless_alone(nodes, error)
            return None
        assembly = choose(nodes, self._fingerprint, here.facts)
        return self._with_addresses(assembly, nodes, here)

    def _raise_unless_alone(self, nodes: Sequence[SeenNode], error: ClusterError) -> None:
        silent = [entry for entry in self._discovery.silent() if entry.is_static]
        if silent:
            raise NodeUnreachable(
                "; ".join(entry.why for entry in silent),
                "start `streamoe-node` there, correct --node, or let `streamoe-coord doctor` test the network",
            )
        if self._static or self._of_model(nodes):
            raise error

    def _of_model(self, nodes: Sequence[SeenNode]) -> list[SeenNode]:
        return [seen for seen in nodes if seen.facts.fingerprint.startswith(self._fingerprint or "")]

    def _say(self, nodes: Sequence[SeenNode], error: ClusterError) -> None:
        if not nodes:
            line = "looking for nodes"
        elif isinstance(error, NodesDoNotTile):
            line = f"waiting: {error.message}; here: {', '.join(named(seen.facts) for seen in nodes)}"
        else:
            line = f"waiting: {error.message}"
        if line != self._told:
            self._told = line
            self._tell(line)

    def _with_addresses(self, assembly: Assembly, nodes: Sequence[SeenNode], here: Seat | None = None) -> Gathered:
        places = {seen.facts.node_id: seen.places for seen in nodes}
        chosen = {f.node_id: places[f.node_id] for f in assembly.bands if f.node_id in places}
        addresses = measure_nodes(self._access, chosen)
        self._last_known.save(
            {node_id: [entry.place for entry in measured if entry.speed] for node_id, measured in addresses.items()}
        )
        return Gathered(assembly, addresses, here)


def choose(nodes: Sequence[SeenNode], fingerprint: str | None = None, here: NodeFacts | None = None) -> Assembly:
    """The best bands of the nodes around, each with what it measured of itself and its distance; here: a band of this
    process beside them.

    Raises what `assemble` raises.
    """
    rtt_s = {seen.facts.node_id: seen.rtt_s for seen in nodes}
    layer_s = [f.token_s / (f.last_layer - f.first_layer + 1) for f in (seen.facts for seen in nodes) if f.token_s]
    typical_s = mean(layer_s) if layer_s else _UNMEASURED_LAYER_S

    def band_s(facts: NodeFacts) -> float:
        own_s = facts.token_s or typical_s * (facts.last_layer - facts.first_layer + 1)
        return own_s + rtt_s.get(facts.node_id, 0.0)

    around = [seen.facts for seen in nodes]
    return assemble(around if here is None else [*around, here], fingerprint=fingerprint, band_s=band_s)
