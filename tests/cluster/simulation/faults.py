"""What a seed does to a run: to frames on the wire, to nodes, to clocks, to the coordinator. All drawn in advance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from .nodes import SimNode
from .toy_band import read_failed
from .wires import Spoiled
from .world import World

FRAME_FAULTS = ("delay", "drop", "duplicate", "truncate", "flip", "cut")
NODE_FAULTS = (
    "crash",
    "crash_silently",
    "freeze",
    "cut",
    "cut_silently",
    "clock_jump",
    "read_failed",
    "shelf_broken",
    "shelf_lost",
    "drain",
    "slow",
)


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Something that happens to a node at a time. back_s: how long until it is over, None: never."""

    at_s: float
    node: str
    kind: str
    back_s: float | None


class FrameFaults:
    """Spoils frames: some by their number, others by chance. One for all wires."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self._chance, self._world = chance, world
        style = chance.random()
        self._share = 0.0 if style < 0.5 else chance.choice((0.01, 0.03, 0.1))
        num_chosen = 0 if style < 0.2 else chance.randint(1, 3)
        self._chosen = {chance.randint(0, 80): chance.choice(FRAME_FAULTS) for _ in range(num_chosen)}
        self._count = 0
        self.is_on = True

    @property
    def is_mild(self) -> bool:
        """Whether a frame is spoiled only now and then."""
        return self._share <= 0.03

    def spoil(self, data: bytes) -> Spoiled:
        """What arrives of a frame, and when."""
        self._count += 1
        if not self.is_on:
            return [(0.0, data)]
        kind = self._chosen.get(self._count - 1)
        if kind is None:
            if not self._share or self._chance.random() >= self._share:
                return [(0.0, data)]
            kind = self._chance.choice(FRAME_FAULTS)
        self._world.tell(f"frame {self._count - 1}: {kind}")
        return self._spoiled(kind, data)

    def _spoiled(self, kind: str, data: bytes) -> Spoiled:
        chance = self._chance
        if kind == "delay":
            return [(chance.choice((0.05, 1.0, 6.0, 20.0)), data)]
        if kind == "drop":
            return []
        if kind == "duplicate":
            return [(0.0, data), (chance.choice((0.0, 0.02, 0.5)), data)]
        if kind == "truncate":
            return [(0.0, data[: chance.randrange(len(data))])]
        if kind == "flip":
            at = chance.randrange(8 * len(data))
            changed = bytearray(data)
            changed[at // 8] ^= 1 << at % 8
            return [(0.0, bytes(changed))]
        return None


def is_mild(faults: list[NodeFault]) -> bool:
    """Whether every node is back soon: no run may fail of these."""
    return all(fault.back_s is not None and fault.back_s <= 8.0 for fault in faults)


def draw_node_faults(chance: random.Random, names: list[str]) -> list[NodeFault]:
    """None to four things that happen to nodes, most of them while tokens run."""
    faults = []
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        kind = chance.choice(NODE_FAULTS) if chance.random() < 0.7 else "crash"
        back_s = None if chance.random() < 0.15 else chance.choice((0.1, 2.0, 8.0, 30.0, 100.0))
        at_s = chance.uniform(0.0, chance.choice((0.0, 0.2, 0.4, 0.4, 1.5, 40.0)))
        faults.append(NodeFault(at_s, chance.choice(names), kind, back_s))
    return faults


def apply(fault: NodeFault, node: SimNode, world: World, chance: random.Random, heal: list[Callable[[], None]]) -> None:
    """Let it happen; what ends it goes to `heal` too, for the end of the run."""
    world.tell(f"{node.name}: {fault.kind}, over after {fault.back_s} s")
    over: Callable[[], None] = node.start
    ends_s = 0.0
    if fault.kind in ("crash", "crash_silently"):
        node.crash(is_silent=fault.kind == "crash_silently")
    elif fault.kind == "freeze":
        node.freeze(fault.back_s or 100.0)
        return
    elif fault.kind in ("cut", "cut_silently"):
        is_silent = fault.kind == "cut_silently"
        for wire in list(node.wires):
            wire.cut("link down", is_silent=is_silent, node_learns_s=chance.choice((0.0, 15.0)))
        if is_silent:
            node.is_dark = True
        over = _lit(node)
    elif fault.kind == "clock_jump":
        node.clock_ahead_s += chance.choice((1.0, 40.0, 3600.0))
        return
    elif fault.kind == "read_failed":
        node.next_errors += [read_failed()] * chance.choice((1, 1, 2, 5))
        over = node.next_errors.clear
    elif fault.kind == "shelf_broken":
        node.shelf.is_broken = True
        over = _mended(node)
    elif fault.kind == "shelf_lost":
        node.has_shelf = False
        return
    elif fault.kind == "drain":
        node.drain()
        ends_s = chance.uniform(0.1, 3.0)
        world.at(ends_s, lambda: node.crash(is_silent=False))
    else:
        node.slow_share = 0.3
        over = _quick(node)
    heal.append(over)
    if fault.back_s is not None:
        world.at(ends_s + fault.back_s, over)


def _lit(node: SimNode) -> Callable[[], None]:
    def lit() -> None:
        node.is_dark = node.is_dark and node.core is None

    return lit


def _mended(node: SimNode) -> Callable[[], None]:
    def mended() -> None:
        node.shelf.is_broken = False

    return mended


def _quick(node: SimNode) -> Callable[[], None]:
    def quick() -> None:
        node.slow_share = 0.0

    return quick
