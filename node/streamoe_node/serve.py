"""What `streamoe-node` does: from typed flags to a node that lives until it is told to end.

Owns the order of refusals (usage, exposure, plan, port) and the signals. Refuses to know what a node is made of.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import grpc
import platformdirs

from streamoe_engine.band import BandOptions, plan_request
from streamoe_engine.errors import PlanDoesNotFit, UsageError
from streamoe_engine.store import ModelStore

from .identity import Identity, take_identity
from .life import Door, Moment, Node, NodePlan, plan_node
from .models import resolve_model
from .opening import EngineFlags, band_options
from .report import Report, warn
from .rows import DEFAULT_CREDITS, FEWEST_STEP_TOKENS, Network, default_step_tokens, network_rows
from .security import exposure
from .security.authority import cluster_hash
from .security.credentials import server_credentials
from .security.folder import has_credentials, load_credentials, node_folder
from .supervise import supervisor_bytes

EXIT_INTERRUPTED = 130
# Of a node without --budget: the embedded model, or one whose smallest cap is asked for.
UNASKED_STEP_TOKENS = 512
LOOPBACK, EVERYWHERE = "127.0.0.1", "::"


@dataclass(frozen=True, slots=True)
class Ask:
    """What the user typed, apart from the engine's flags."""

    model: Path | None
    max_sessions: int
    step_tokens: int | None
    may_convert: bool
    host: str | None
    port: int
    name: str | None
    insecure_lan: bool
    announce: bool
    snapshots: Path | None
    as_json: bool


def serve(ask: Ask, flags: EngineFlags) -> None:
    """Plan and live. Raises StreamoeError for every refusal."""
    folder = resolve_model(ask.model, may_convert=ask.may_convert)
    who = take_identity(ask.name)
    door = _door(ask, who)
    planned = _planned(ask, flags, folder)
    report = Report(planned, door.host, as_json=ask.as_json)
    report.plan()
    shelf = ask.snapshots or platformdirs.user_cache_path("streamoe") / "snapshots" / who.node_id
    node = Node(planned, who, door, shelf)

    def tell(moment: Moment, port: int) -> None:
        report.moment(moment, node.facts(), port)

    with _ends_on_signals(node):
        node.run(tell)
    if node.is_computing:  # told to end while it loaded, or in a very long step: Python cannot end under native code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _planned(ask: Ask, flags: EngineFlags, folder: Path) -> NodePlan:
    store = ModelStore(folder)
    flags = replace(flags, sequences=ask.max_sessions)
    # Any cap does here: the request only says what a state and a frame are like.
    asked = band_options(replace(flags, budget=flags.budget or "1GiB"), folder, 0, is_embedded=False)
    request = plan_request(store, asked)
    if ask.step_tokens is not None and ask.step_tokens > request.ctx_tokens:
        raise UsageError(
            f"--step-tokens {ask.step_tokens} is over the context of {request.ctx_tokens}",
            f"use --step-tokens {request.ctx_tokens} or less",
        )
    network = Network(ask.max_sessions, DEFAULT_CREDITS)
    if ask.step_tokens is not None:
        network = replace(network, step_tokens=ask.step_tokens)
    elif flags.budget is None:
        network = replace(network, step_tokens=min(UNASKED_STEP_TOKENS, request.ctx_tokens))
    else:
        network = replace(network, step_tokens=default_step_tokens(store.manifest, request, network))
    # A missing cap is answered with the smallest one, in which sessions and frames count.
    rows = network_rows(store.manifest, request, network, supervisor_bytes())
    options = band_options(flags, folder, 0, is_embedded=ask.model is None, extra_bytes=rows)
    return _fitting(folder, replace(options, extra_bytes=()), network, may_shrink=ask.step_tokens is None)


def _fitting(folder: Path, options: BandOptions, network: Network, *, may_shrink: bool) -> NodePlan:
    """The plan; where the cap is too small for it, frames give way to the band. Raises PlanDoesNotFit: then even with
    the smallest frames, so that the cap it names is one that works.
    """
    while True:
        try:
            return plan_node(folder, options, network)
        except PlanDoesNotFit:
            if not may_shrink or network.step_tokens <= FEWEST_STEP_TOKENS:
                raise
            network = replace(network, step_tokens=max(FEWEST_STEP_TOKENS, network.step_tokens // 2))


def _door(ask: Ask, who: Identity) -> Door:
    credentials, cluster = _credentials(who)
    host = ask.host or (LOOPBACK if credentials is None else EVERYWHERE)
    warning = exposure.check(host, has_credentials=credentials is not None, insecure_lan=ask.insecure_lan)
    if warning is not None:
        warn(warning)
    return Door(host, ask.port, credentials, cluster, ask.announce)


def _credentials(who: Identity) -> tuple[grpc.ServerCredentials | None, str]:
    """This node's, and a hash of its cluster; None where it was never paired. Raises CredentialsUnusable."""
    folder = node_folder(who.node_id)
    if not has_credentials(folder):
        return None, ""
    found = load_credentials(folder)
    return server_credentials(found, who.node_id), cluster_hash(found.authority_pem)


@contextmanager
def _ends_on_signals(node: Node) -> Iterator[None]:
    """SIGTERM and SIGINT drain the node; a second one ends the process at once."""
    num_asked = 0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal num_asked
        num_asked += 1
        if num_asked > 1:
            sys.stderr.write("stopped without draining\n")
            os._exit(EXIT_INTERRUPTED)
        node.end()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
