"""A band opened in this process, reached as a node is: the same core, frames as they are instead of bytes.

Owns the band, its compute thread and its timer. What a chain does with it is what it does with any other band, so
a band that is lost elsewhere can come here and nothing above notices. Refuses to know why it was opened.
"""

from __future__ import annotations

import queue
import threading
import uuid
import weakref
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamoe_engine.band import BandOptions, host_costs, plan_for
from streamoe_engine.band_files import check_band_files
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.store import ModelStore
from streamoe_node.compute import Compute
from streamoe_node.core import Attachment, NodeCore
from streamoe_node.engine_band import EngineBand
from streamoe_node.errors import NodeNotReady, SnapshotUnusable
from streamoe_node.facts import FactsMaker, Fixed
from streamoe_node.identity import Identity
from streamoe_node.limits import NodeLimits
from streamoe_node.ports import ShelfEntry
from streamoe_proto.messages import FromNode, NodeFacts, Open, ToNode

from .ports import ChannelLost, ChannelTimeout, Seat, Target
from .timers import MachineClock

_TICK_S = 0.5
_OPEN_S, _CLOSE_S = 600.0, 5.0


class LocalBand:
    """A band of this process, and the Dialer that reaches it. Use as a context manager, or call close()."""

    def __init__(self, folder: Path, options: BandOptions, max_sessions: int = 1) -> None:
        """Plan and open; returns when the band is ready.

        Raises PlanDoesNotFit and UsageError before any weight is read, and what opening and its self-test raise.
        """
        options = replace(options, sequences=max_sessions, host=options.host or host_costs(options.tokenizer_bytes))
        store = ModelStore(folder)
        manifest, plan = store.manifest, plan_for(folder, options)
        limits = NodeLimits(max_sessions=max_sessions)
        first, last = plan.first_layer, plan.last_layer
        check_band_files(store, first, last)
        identity = Identity(f"here-{uuid.uuid4().hex[:11]}", uuid.uuid4().hex[:16], "this process")
        self._facts_maker = FactsMaker(Fixed(identity, manifest, fingerprint(manifest), plan, limits, {}))
        self._limits, self._target = limits, Target(identity.node_id, identity.name)
        self._channels: weakref.WeakSet[LocalChannel] = weakref.WeakSet()
        self._compute = Compute(folder, options, self._make_core)
        self._is_closed = threading.Event()
        self._compute.start()
        if not self._compute.changed.wait(_OPEN_S):
            self.close()
            raise NodeNotReady(f"layers {first}-{last} did not open here within {_OPEN_S:.0f} s", "look at the disk")
        if self._compute.error is not None:
            raise self._compute.error
        threading.Thread(target=self._tick, name="local band's timer", daemon=True).start()

    @property
    def seat(self) -> Seat:
        """Where it is served."""
        return Seat(self, self._target, self._facts())

    def dial(self, target: Target, opening: Open, timeout_s: float) -> LocalChannel:
        """A session's stream. Raises ChannelLost once it is closed."""
        core = self._compute.core
        if core is None or not self._compute.is_alive:
            raise ChannelLost("the band of this process is closed")
        channel = LocalChannel(core, opening)
        self._channels.add(channel)
        return channel

    def node_facts(self, target: Target, timeout_s: float) -> NodeFacts:
        """As a node tells it."""
        if not self._compute.is_alive:
            raise ChannelLost("the band of this process is closed")
        return self._facts()

    def close(self) -> None:
        """End the streams at once, the compute thread after its running step, and close the band."""
        self._is_closed.set()
        for channel in list(self._channels):
            channel.end()
        self._compute.stop()
        self._compute.join(_CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _facts(self) -> NodeFacts:
        core = self._compute.core
        return self._facts_maker.facts(
            self._compute.state,
            self._compute.canary,
            self._compute.counts(),
            core.token_s if core is not None else 0.0,
        )

    def _make_core(self, band: EngineBand) -> NodeCore:
        return NodeCore(self._facts, band, MachineClock(), self._limits, _NoShelf())

    def _tick(self) -> None:
        while not self._is_closed.wait(_TICK_S):
            core = self._compute.core
            if core is not None:
                core.tick()


class LocalChannel:
    """A stream to a core in this process."""

    def __init__(self, core: NodeCore, opening: Open) -> None:
        self._frames: queue.SimpleQueue[FromNode | None] = queue.SimpleQueue()
        self._is_over = False
        self._is_ended = False
        self._attachment: Attachment = core.attach(opening, self._frames.put, self.end)

    def send(self, frame: ToNode) -> None:
        """Hand a frame over. Raises ChannelLost."""
        if self._is_over:
            raise ChannelLost("the stream is closed")
        self._attachment.receive(frame)

    def receive(self, timeout_s: float) -> FromNode:
        """The next frame. Raises ChannelTimeout and ChannelLost."""
        if self._is_over:
            raise ChannelLost("the stream is closed")
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            raise ChannelTimeout from None
        if frame is None:
            self._is_over = True
            raise ChannelLost("the band ended the stream")
        return frame

    def end(self) -> None:
        """Nothing more will come. Any thread."""
        self._frames.put(None)
        self._is_ended = True

    @property
    def is_lost(self) -> bool:
        """Whether the band has ended the stream."""
        return self._is_ended or self._is_over

    def close(self) -> None:
        """End it. Never blocks."""
        if not self._is_over:
            self._is_over = True
            self._frames.put(None)
            self._attachment.detach()


class _NoShelf:
    """Snapshots have no room in this process's plan: what is lost here is run again."""

    def save(self, session: str, position: int, prefix_hash: bytes, snapshot: Any) -> ShelfEntry:
        """Refuse."""
        raise SnapshotUnusable("this process keeps no snapshots", "the tokens can be run again")

    def entries(self, session: str) -> tuple[ShelfEntry, ...]:
        """None."""
        return ()

    def load(self, entry: ShelfEntry) -> Any:
        """Refuse."""
        raise SnapshotUnusable("this process keeps no snapshots", "the tokens can be run again")

    def discard(self, entry: ShelfEntry) -> None:
        """Nothing to forget."""

    def drop(self, session: str) -> None:
        """Nothing to forget."""
