"""Which of a node's addresses to use: measured, not guessed, and remembered.

Owns the measurement's form, the ranking, and the file of addresses that worked. Refuses to know how nodes are found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from streamoe_engine.errors import UsageError
from streamoe_engine.sizes import KIB, MIB
from streamoe_node.errors import ClusterError
from streamoe_proto.channel_options import FRAME_OVERHEAD_BYTES

from .access import Access
from .node_client import NodeClient
from .places import Place, parse_place

_ROUNDS = 5
_BULK_BYTES = 1 * MIB
_MEASURE_S = 10.0
_MAX_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """rtt_s: the shortest of several round trips. bytes_per_s: one way, in bulk."""

    rtt_s: float
    bytes_per_s: float

    def hop_s(self, num_bytes: int) -> float:
        """Seconds for a step of num_bytes there and as many back."""
        return self.rtt_s + 2 * num_bytes / self.bytes_per_s

    @property
    def cost_s(self) -> float:
        """What decides between two addresses: a prompt's chunk of 4 MiB and an answer of 256 tokens of 8 KiB. Round
        trip alone would choose a near but narrow link for both."""
        return self.hop_s(4 * MIB) + 256 * self.hop_s(8 * KIB)


@dataclass(frozen=True, slots=True)
class Measured:
    """An address and its speed; speed None where it does not answer, and why."""

    place: Place
    speed: LinkSpeed | None
    why: str = ""


def measure(client: NodeClient) -> LinkSpeed:
    """Ask a node's echo. Raises NodeUnreachable."""
    # Asking for the facts connects, too.
    num_bytes = min(_BULK_BYTES, client.facts().max_frame_bytes - FRAME_OVERHEAD_BYTES)
    rtt_s = min(client.probe_s(8) for _ in range(_ROUNDS))
    bulk_s = min(client.probe_s(num_bytes, _MEASURE_S) for _ in range(2))
    return LinkSpeed(rtt_s, 2 * num_bytes / max(1e-6, bulk_s - rtt_s))


def measure_all(access: Access, places: Sequence[Place]) -> tuple[Measured, ...]:
    """Each address measured, one after another: two at once would share the line they are to be told apart by.
    What does not answer comes last."""
    return ranked(_measured(access, place) for place in places)


def measure_nodes(access: Access, places: Mapping[str, Sequence[Place]]) -> dict[str, tuple[Measured, ...]]:
    """The same for several nodes, by node id, several nodes at once."""
    with ThreadPoolExecutor(min(_MAX_AT_ONCE, max(1, len(places)))) as pool:
        found = pool.map(lambda of_node: measure_all(access, of_node), places.values())
        return dict(zip(places, found, strict=True))


def ranked(measured: Iterable[Measured]) -> tuple[Measured, ...]:
    """The best first, the unreachable last."""
    return tuple(sorted(measured, key=lambda m: (m.speed is None, m.speed.cost_s if m.speed else 0.0, m.place)))


def _measured(access: Access, place: Place) -> Measured:
    try:
        with NodeClient(access, place) as client:
            return Measured(place, measure(client))
    except ClusterError as error:
        return Measured(place, None, error.message)


class LastKnown:
    """The addresses where nodes were used last, best first: where mDNS is blocked, they are tried without it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or platformdirs.user_cache_path("streamoe") / "nodes.json"

    def load(self) -> dict[str, tuple[Place, ...]]:
        """By node id; {} where there is no file, or none that can be read: it is only a hint."""
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))["nodes"]
            return {str(node_id): tuple(map(parse_place, texts)) for node_id, texts in raw.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError):
            return {}

    def save(self, used: Mapping[str, Sequence[Place]]) -> None:
        """Keep these, beside those of other nodes. A full disk loses a hint and nothing else."""
        nodes = {**self.load(), **used}
        text = json.dumps({"schema": 1, "nodes": {key: [str(place) for place in nodes[key]] for key in sorted(nodes)}})
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._path)
        except OSError:
            return
