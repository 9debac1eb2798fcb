"""A node's life: plan, bind, announce, load, test, serve, drain, close.

Owns the order, and every state in between; each thing opened is closed here, also after an error. One process: gRPC's
threads move frames, one thread computes, and the main thread watches. A front in a process of its own would cost each
frame two more copies and 40 MiB; what it would tell, by which signal an engine ended, supervise.py's parent tells.
Refuses to know flags and what is printed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import grpc

from streamoe_engine.band import BandOptions, host_costs, plan_for, plan_request
from streamoe_engine.band_files import check_band_files
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.plan import Plan
from streamoe_engine.store import ModelStore
from streamoe_proto.announcement import Announcement
from streamoe_proto.messages import NodeFacts

from .announce import Announcer
from .compute import Compute
from .core import NodeCore
from .engine_band import EngineBand
from .facts import FactsMaker, Fixed
from .folder_shelf import FolderShelf
from .identity import Identity
from .limits import NodeLimits
from .ports import BandPort
from .rows import Network, frame_bytes, network_rows, row_reasons
from .server import Server, Services
from .services.band import BandService
from .services.events import EventsService
from .services.node import NodeService
from .services.snapshots import SnapshotService
from .services.traffic import Traffic
from .supervise import supervisor_bytes, supervisor_pid

_TICK_S = 0.25
_LONGEST_DRAIN_S = 120.0
_GRACE_S = 1.0
_log = logging.getLogger(__name__)

Moment = Literal["loading", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a node will be, before anything is opened. options: with the network's rows and the measured host."""

    folder: Path
    options: BandOptions
    network: Network
    plan: Plan
    why: dict[str, str]


@dataclass(frozen=True, slots=True)
class Door:
    """Where and to whom a node listens. cluster: a hash of its cluster, "" without credentials."""

    host: str
    port: int
    credentials: grpc.ServerCredentials | None = None
    cluster: str = ""
    is_announced: bool = True


def plan_node(folder: Path, options: BandOptions, network: Network) -> NodePlan:
    """The node's plan now, in this process: import what it will use first. No weight is touched.

    Raises PlanDoesNotFit, UsageError, ModelFolderError; of these ModelFileMissing where the folder lacks layers.
    """
    store = ModelStore(folder)
    options = replace(options, sequences=network.max_sessions, host=options.host or host_costs())
    rows = network_rows(store.manifest, plan_request(store, options), network, supervisor_bytes())
    options = replace(options, extra_bytes=(*options.extra_bytes, *rows))
    plan = plan_for(folder, options)
    check_band_files(store, plan.first_layer, plan.last_layer)
    return NodePlan(folder, options, network, plan, row_reasons(store.manifest, network))


class _RealClock:
    def now_s(self) -> float:
        return time.monotonic()


class Node:
    """One node. `run` is its whole life; `end` asks it to drain, from any thread or signal handler."""

    def __init__(self, planned: NodePlan, identity: Identity, door: Door, shelf_folder: Path) -> None:
        self._planned, self._door, self._identity = planned, door, identity
        manifest = ModelStore(planned.folder).manifest
        self._limits = NodeLimits(
            max_sessions=planned.network.max_sessions,
            max_frame_bytes=frame_bytes(manifest, planned.network.step_tokens),
            credits=planned.network.credits,
            progress_s=0.7,
        )
        snapshot_bytes = planned.plan.item_bytes("snapshot buffer")
        self._shelf = FolderShelf(shelf_folder, snapshot_bytes)
        root, plan = fingerprint(manifest), planned.plan
        self._facts_maker = FactsMaker(Fixed(identity, manifest, root, plan, self._limits, planned.why))
        self._compute = Compute(planned.folder, planned.options, self._make_core)
        self._ending, self._traffic = threading.Event(), Traffic()
        self._services = Services(
            NodeService(self.facts, self._core, self.end, self._limits.max_frame_bytes),
            BandService(self._core, self._traffic),
            SnapshotService(self._shelf, planned.folder, manifest, root, (plan.first_layer, plan.last_layer)),
            EventsService(self.facts, self._core, self._compute.counts, self._traffic, self._ending),
        )

    def facts(self) -> NodeFacts:
        """What this node is now."""
        counts = self._compute.counts()
        core = self._compute.core
        token_s = core.token_s if core is not None else 0.0
        return self._facts_maker.facts(self._compute.state, self._compute.canary, counts, token_s)

    def end(self) -> None:
        """Ask the node to drain and close."""
        self._ending.set()

    @property
    def is_computing(self) -> bool:
        """Whether the compute thread still runs; after `run`, only where it could not be waited for."""
        return self._compute.is_alive

    def run(self, tell: Callable[[Moment, int], None]) -> None:
        """Live. tell: each moment, and the port. Raises PortInUse before loading, and what opening or a step's own
        mistake raised.
        """
        with ExitStack() as open_things:
            limits, door = self._limits, self._door
            server = Server(
                self._services, door.host, door.port, door.credentials, limits.max_sessions, limits.max_frame_bytes
            )
            open_things.callback(server.close, _GRACE_S)
            announcer = self._announcer(server.port) if door.is_announced else None
            if announcer is not None:
                open_things.callback(announcer.close)
            tell("loading", server.port)
            open_things.callback(self._stop_computing)
            self._compute.start()
            self._watch(server, announcer, tell)

    def _watch(self, server: Server, announcer: Announcer | None, tell: Callable[[Moment, int], None]) -> None:
        is_ready, parent = False, supervisor_pid()
        while not self._ending.wait(_TICK_S):
            self._tick(server, announcer)
            if not self._compute.is_alive or (parent is not None and supervisor_pid() is None):
                self._ending.set()
            elif not is_ready and self._compute.core is not None:
                is_ready = True
                tell("ready", server.port)
        server.serving(False)
        if self._compute.error is None:
            tell("draining", server.port)
        self._drain(server, announcer)
        if self._compute.error is not None:
            raise self._compute.error

    def _drain(self, server: Server, announcer: Announcer | None) -> None:
        core, deadline_s = self._compute.core, time.monotonic() + _LONGEST_DRAIN_S
        if core is None:
            self._compute.stop()
            return
        core.drain()
        while self._compute.is_alive and time.monotonic() < deadline_s:
            self._tick(server, announcer)
            self._compute.join(_TICK_S)

    def _tick(self, server: Server, announcer: Announcer | None) -> None:
        core, state = self._compute.core, self._compute.state
        if core is not None:
            core.tick()
        is_well = state in ("ready", "busy", "degraded") and not (core is not None and core.is_stuck)
        server.serving(is_well and not self._ending.is_set())
        if announcer is not None:
            announcer.tell(state)

    def _stop_computing(self) -> None:
        self._compute.stop()
        if not self._compute.join(_GRACE_S):
            _log.warning("a step is still being computed; the process ends without it")

    def _core(self) -> NodeCore | None:
        return self._compute.core

    def _make_core(self, band: EngineBand) -> NodeCore:
        port: BandPort = band
        return NodeCore(self.facts, port, _RealClock(), self._limits, self._shelf)

    def _announcer(self, port: int) -> Announcer:
        facts = self.facts()
        told = Announcement(
            node_id=facts.node_id,
            boot_id=facts.boot_id,
            protocol_major=facts.protocol_major,
            layers=f"{facts.first_layer}-{facts.last_layer}",
            state=facts.state,
            fingerprint=facts.fingerprint,
            cluster=self._door.cluster,
            is_tls=self._door.credentials is not None,
        )
        return Announcer(told, self._identity.name, self._door.host, port)
