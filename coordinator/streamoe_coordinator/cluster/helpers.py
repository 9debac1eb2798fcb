"""Who can help when a band's node is gone: other nodes around, and this process where it was given a cap.

Owns the answers to the chain's Rescue questions. Refuses to know when they are asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from streamoe_engine.errors import StreamoeError
from streamoe_proto.messages import NodeFacts

from .access import Access
from .discovery import Discovery
from .gathering import seat_of
from .node_client import NodeClient
from .places import Place, parse_place
from .ports import Dialer, Seat

OpenLocally = Callable[[tuple[int, int]], Seat | None]


class ClusterRescue:
    """Looks among the nodes that answer now. model: a node of the model that the chain runs.

    open_here: opens a band in this process, None where no cap was given for it.
    """

    def __init__(
        self,
        discovery: Discovery,
        access: Access,
        dialer: Dialer,
        model: NodeFacts,
        open_here: OpenLocally | None = None,
    ) -> None:
        self._discovery, self._access, self._dialer, self._model = discovery, access, dialer, model
        self._open_here = open_here

    def find_replacement(self, layers: tuple[int, int], avoid: frozenset[str]) -> Seat | None:
        """The nearest ready node of the same model and format with exactly these layers."""
        nodes = sorted(self._discovery.nodes(), key=lambda seen: (seen.rtt_s, seen.facts.node_id))
        ids = [seen.facts.node_id for seen in nodes]
        for seen in nodes:
            facts = seen.facts
            is_it = (facts.fingerprint, facts.kv) == (self._model.fingerprint, self._model.kv)
            is_fit = facts.state in ("ready", "busy") and (facts.first_layer, facts.last_layer) == layers
            if is_it and is_fit and facts.node_id not in avoid and ids.count(facts.node_id) == 1:
                return seat_of(self._dialer, facts, seen.places)
        return None

    def move_snapshot(self, session: str, source: Seat, target: Seat, timeout_s: float) -> bool:
        """Copy the session's newest snapshot between two nodes, through this machine, a chunk at a time."""
        deadline_s = time.monotonic() + timeout_s
        try:
            with NodeClient(self._access, _place(source)) as giver, NodeClient(self._access, _place(target)) as taker:
                kept = giver.snapshots(session, min(5.0, timeout_s))
                if not kept:
                    return False
                newest = max(kept, key=lambda snapshot: snapshot.position)
                left_s = deadline_s - time.monotonic()
                taker.store_snapshot(newest, giver.fetch_snapshot(newest.snapshot_id), max(0.1, left_s))
        except (StreamoeError, IndexError):
            return False
        return True

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        """The band in this process. Raises StreamoeError where its plan does not allow it."""
        return None if self._open_here is None else self._open_here(layers)


def _place(seat: Seat) -> Place:
    # IndexError for a seat in this process, which has no address and no shelf that others reach.
    return parse_place(seat.target.addresses[0])
