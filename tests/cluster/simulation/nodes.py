"""A node in virtual time: the real core over a toy band, a process that can crash, freeze and come back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from greenlet import greenlet

from streamoe_coordinator.cluster.ports import Channel, ChannelLost, Seat, Target
from streamoe_engine.errors import StreamoeError
from streamoe_node.core import NodeCore
from streamoe_node.errors import SnapshotUnusable
from streamoe_node.limits import NodeLimits
from streamoe_node.ports import ShelfEntry
from streamoe_node.shelf import MemoryShelf
from streamoe_proto.messages import NodeFacts, Open

from .toy_band import CTX_TOKENS, NUM_LAYERS, VOCAB, WIDTH, ToyBand
from .wires import Spoiler, Wire
from .world import Mailbox, World

ORPHAN_TTL_S = 60.0
LATENCY_S = 0.0003


class SimShelf(MemoryShelf):
    """A shelf on a disk that may be full, or give back nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def save(self, session: str, position: int, prefix_hash: bytes, snapshot: Any) -> ShelfEntry:
        """Keep a snapshot."""
        if self.is_broken:
            raise SnapshotUnusable("the disk is full", "make room")
        return super().save(session, position, prefix_hash, snapshot)

    def load(self, entry: ShelfEntry) -> Any:
        """Give it back."""
        if self.is_broken:
            raise SnapshotUnusable("the snapshot's checksum is wrong", "the tokens can be run again")
        return super().load(entry)


class SimNode:
    """One machine. core None: the process is not there."""

    def __init__(self, world: World, name: str, layers: tuple[int, int], seed: str, max_sessions: int = 4) -> None:
        self.world, self.name, self.layers, self.max_sessions = world, name, layers, max_sessions
        self._random = random.Random(f"{seed}/{name}")
        self.shelf = SimShelf()
        self.core: NodeCore | None = None
        self.band: ToyBand | None = None
        self.wires: dict[Wire, None] = {}  # in the order they came
        self.has_shelf = True
        self.is_dark = False  # does not even refuse a dial: frozen, or off the network
        self.clock_ahead_s = 0.0
        self.next_errors: list[StreamoeError] = []  # of the next runs
        self.step_s = 0.01
        self.slow_share = 0.0
        self._frozen_until_s = 0.0
        self._boots = 0
        self._kicks: Mailbox[None] = Mailbox(world)
        self._task: greenlet | None = None
        self.start()

    # ---- life

    def start(self) -> None:
        """The process begins; its band is new, its shelf as the last one left it."""
        if self.core is not None:
            return
        self._boots += 1
        self.is_dark = False
        if not self.has_shelf:
            self.shelf = SimShelf()
        first, last = self.layers
        self.band = ToyBand(first, last, 4, self._before_step, self._compute)
        limits = NodeLimits(self.max_sessions, orphan_ttl_s=ORPHAN_TTL_S)
        self.core = NodeCore(self.facts, self.band, self, limits, self.shelf)
        self._kicks = Mailbox(self.world)
        self._task = self.world.spawn(self._work)
        self.world.at(1.0, self._tick, self._boots)
        self.world.tell(f"{self.name} started (boot {self._boots})")

    def crash(self, *, is_silent: bool) -> None:
        """Kill -9, or, silently, the power."""
        if self.core is None:
            return
        self.world.tell(f"{self.name} crashed{' silently' if is_silent else ''}")
        task, self._task, self.core, self.band = self._task, None, None, None
        self.is_dark = is_silent
        self._frozen_until_s = 0.0
        for wire in list(self.wires):
            wire.forget_node("connection reset by peer", is_silent=is_silent)
        self.wires.clear()
        if task is not None:
            self.world.kill(task)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        if self.core is not None:
            self.world.tell(f"{self.name} frozen for {seconds:.1f} s")
            self._frozen_until_s = max(self._frozen_until_s, self.world.now_s + seconds)

    def drain(self) -> None:
        """SIGTERM."""
        if self.core is not None:
            self.core.drain()
            self.kick()

    def has_session(self, beginning: str) -> bool:
        """Whether it holds a session whose name begins so."""
        return self.core is not None and any(held[0].startswith(beginning) for held in self.core.sessions())

    @property
    def is_frozen(self) -> bool:
        """Whether nothing moves in it now."""
        return self.world.now_s < self._frozen_until_s

    @property
    def frozen_s(self) -> float:
        """How long it will stay frozen."""
        return max(0.0, self._frozen_until_s - self.world.now_s)

    def when_awake(self, act: Callable[[], None]) -> None:
        """Now, or when it is no longer frozen; never when the process is gone by then."""
        if not self.is_frozen:
            act()
        else:
            self.world.at(self._frozen_until_s - self.world.now_s, self._if_same, self._boots, act)

    def _if_same(self, boot: int, act: Callable[[], None]) -> None:
        if boot == self._boots and self.core is not None:
            self.when_awake(act)

    # ---- its clock, and its compute thread

    def now_s(self) -> float:
        """Its clock."""
        return self.world.now_s + self.clock_ahead_s

    def kick(self) -> None:
        """There may be work."""
        self._kicks.put(None)

    def _work(self) -> None:
        core, kicks = self.core, self._kicks
        assert core is not None
        while True:
            while core.run_next():
                self._stand_still()
            kicks.get(None)
            self._stand_still()

    def _tick(self, boot: int) -> None:
        if boot == self._boots and self.core is not None:
            if not self.is_frozen:
                self.core.tick()
                self.kick()
            self.world.at(1.0 if self.core.state() == "busy" else 7.0, self._tick, boot)

    def _stand_still(self) -> None:
        while self.is_frozen:
            self.world.sleep(self._frozen_until_s - self.world.now_s)

    def _before_step(self, num_tokens: int) -> float:
        if self.next_errors:
            error = self.next_errors.pop()
            self.world.tell(f"{self.name}: {error.message}")
            raise error
        if self._random.random() < self.slow_share:
            return self._random.uniform(1.0, 25.0)
        return self.step_s * num_tokens * self._random.uniform(0.5, 2.0)

    def _compute(self, seconds: float) -> None:
        self.world.sleep(seconds)
        self._stand_still()

    # ---- what it tells

    def facts(self) -> NodeFacts:
        """GetInfo; of a process that is gone, what it told last."""
        return NodeFacts(
            node_id=self.name,
            boot_id=f"{self.name}/{self._boots}",
            name=self.name,
            protocol_major=1,
            protocol_minor=0,
            version="0",
            state="closed" if self.core is None else self.core.state(),
            family="toy",
            fingerprint="f00d",
            num_layers=NUM_LAYERS,
            first_layer=self.layers[0],
            last_layer=self.layers[1],
            hidden_size=WIDTH,
            vocab_size=VOCAB,
            ctx_tokens=CTX_TOKENS,
            chunk_tokens=4,
            max_frame_bytes=32 * 1024 * 1024,
            kv="f32",
            compute_dtype="float32",
            backend="kernels",
            row_invariant=True,
            max_sessions=self.max_sessions,
            cap_bytes=1000,
            footprint_bytes=10,
            peak_bytes=20,
        )


class SimDialer:
    """Reaches the nodes of a world. One a coordinator: when it dies, its streams do."""

    def __init__(self, world: World, nodes: dict[str, SimNode], spoil: Spoiler) -> None:
        self._world, self._nodes, self._spoil = world, nodes, spoil
        self.wires: list[Wire] = []

    def dial(self, target: Target, opening: Open, timeout_s: float) -> Channel:
        """A wire, once the node has answered."""
        node = self._reach(target, timeout_s)
        wire = Wire(self._world, node, LATENCY_S, self._spoil)
        self.wires.append(wire)
        wire.send(opening)
        return wire

    def node_facts(self, target: Target, timeout_s: float) -> NodeFacts:
        """What the node tells."""
        return self._reach(target, timeout_s).facts()

    def _reach(self, target: Target, timeout_s: float) -> SimNode:
        node = self._nodes[target.node_id]
        self._world.sleep(2 * LATENCY_S)
        if node.is_dark or node.is_frozen:
            self._world.sleep(timeout_s)
            raise ChannelLost(f"{node.name} did not answer within {timeout_s:.1f} s")
        if node.core is None:
            raise ChannelLost(f"{node.name} refused the connection")
        return node

    def seat(self, name: str) -> Seat:
        """The seat of a node that is up."""
        return Seat(self, Target(name, name), self._nodes[name].facts())
