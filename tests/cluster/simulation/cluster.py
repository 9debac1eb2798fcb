"""What a seed makes: nodes, a wire that it spoils, faults in time, and one coordinator after another."""

from __future__ import annotations

import random
from collections.abc import Callable

from streamoe_coordinator.cluster.chain import Chain, ChainOptions
from streamoe_coordinator.cluster.notices import BandRecovered, Notice
from streamoe_coordinator.cluster.ports import Seat

from .faults import FrameFaults, NodeFault, apply, draw_node_faults, is_mild
from .nodes import SimDialer, SimNode
from .world import World

SPLITS = (
    ((0, 11),),
    ((0, 5), (6, 11)),
    ((0, 0), (1, 11)),
    ((0, 3), (4, 7), (8, 11)),
    ((0, 8), (9, 10), (11, 11)),
    ((0, 1), (2, 4), (5, 6), (7, 9), (10, 11)),
)


class ClockAhead:
    """The coordinator's clock, which may jump."""

    def __init__(self, world: World) -> None:
        self._world, self.ahead_s = world, 0.0

    def now_s(self) -> float:
        """Its time."""
        return self._world.now_s + self.ahead_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._world.sleep(seconds)


class _Rescue:
    """A spare node for a band, or one opened in the coordinator's own process, where the seed has them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find_replacement(self, layers: tuple[int, int], avoid: frozenset[str]) -> Seat | None:
        """The spare, when it is up."""
        for node in self._cluster.nodes.values():
            if node.layers == layers and node.name not in avoid and node.core is not None and not node.is_dark:
                return self._cluster.dialer.seat(node.name)
        return None

    def move_snapshot(self, session: str, source: Seat, target: Seat, timeout_s: float) -> bool:
        """Copy what the old shelf has."""
        nodes = self._cluster.nodes
        old, new = nodes[source.target.node_id], nodes[target.target.node_id]
        for entry in old.shelf.entries(session):
            if not old.shelf.is_broken and not new.shelf.is_broken:
                new.shelf.save(session, entry.position, entry.prefix_hash, old.shelf.load(entry))
        return True

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        """A band here."""
        return self._cluster.open_locally(layers)


class Cluster:
    """Nodes, and one coordinator after another."""

    def __init__(self, seed: int, *, is_told: bool = False) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.world = World(is_told=is_told)
        self.split = self.chance.choice(SPLITS)
        self.max_sessions = 4
        self.nodes: dict[str, SimNode] = {}
        for first, last in self.split:
            self._add_node(f"node-{first}", (first, last))
        for first, last in self.split:
            if self.chance.random() < 0.25:
                self._add_node(f"spare-{first}", (first, last))
        self.may_open_locally = self.chance.random() < 0.2
        self.frames = FrameFaults(self.chance, self.world)
        self.dialer = SimDialer(self.world, self.nodes, self.frames.spoil)
        self.recoveries: list[BandRecovered] = []
        self._heal: list[Callable[[], None]] = []
        self._epoch = 0
        self.is_mild = True  # no fault of the seed excuses an error
        self.has_slow_node = False

    def _add_node(self, name: str, layers: tuple[int, int]) -> SimNode:
        self.nodes[name] = SimNode(self.world, name, layers, str(self.seed), self.max_sessions)
        return self.nodes[name]

    def open_locally(self, layers: tuple[int, int]) -> Seat | None:
        """A band in the coordinator's process: no wire that could fail."""
        name = f"local-{layers[0]}"
        if not self.may_open_locally or name in self.nodes:
            return None
        self._add_node(name, layers)
        return SimDialer(self.world, self.nodes, lambda data: [(0.0, data)]).seat(name)

    def chain(self, clock: ClockAhead, name: str) -> Chain:
        """A coordinator's chain. The nodes were found before anything went wrong."""
        self._epoch += 1
        count = iter(range(1000))
        return Chain(
            [self.dialer.seat(f"node-{first}") for first, _ in self.split],
            ChainOptions(
                words_wanted=self.chance.choice((1, None)),
                checkpoint_tokens=self.chance.choice((None, 4, 4, 9)),
                history_bytes=self.chance.choice((0, 300, 1 << 20)),
                epoch=self._epoch,
            ),
            clock=clock,
            rescue=_Rescue(self),
            notify=self._notice,
            new_session=lambda: f"{name}-{next(count)}",
        )

    def spoil(self) -> None:
        """Let the seed's faults begin."""
        faults = draw_node_faults(self.chance, list(self.nodes))
        self.is_mild = self.frames.is_mild and is_mild(faults)
        self.has_slow_node = any(fault.kind == "slow" for fault in faults)
        for fault in faults:
            self.world.at(fault.at_s, self._apply, fault)

    def _apply(self, fault: NodeFault) -> None:
        if self.frames.is_on:
            apply(fault, self.nodes[fault.node], self.world, self.chance, self._heal)

    def heal(self) -> None:
        """Everything is whole again, once what is frozen has thawed and what drains has ended."""
        self.world.tell("all is healed")
        self.frames.is_on = False
        self.world.run(lambda: False, 4.0 + max(node.frozen_s for node in self.nodes.values()))
        for over in self._heal:
            over()
        for node in self.nodes.values():
            node.next_errors.clear()
            node.start()

    def leaks(self) -> str:
        """What is left where nothing should be, "" for nothing."""
        for node in self.nodes.values():
            if node.core is not None and node.core.sessions():
                return f"{node.name} still has {node.core.sessions()}"
            if node.band is not None and node.band.num_held:
                return f"{node.name} still holds {node.band.num_held} states"
            if node.wires:
                return f"{node.name} still has {len(node.wires)} streams"
        return ""

    def _notice(self, notice: Notice) -> None:
        self.world.tell(f"notice: {notice}")
        if isinstance(notice, BandRecovered):
            self.recoveries.append(notice)
