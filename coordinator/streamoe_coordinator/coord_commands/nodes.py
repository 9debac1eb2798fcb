"""`streamoe-coord nodes`: who is there, which layers each has, what is missing."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from streamoe_engine.errors import StreamoeError
from streamoe_node.errors import NodeUnreachable

from .. import cluster_options, options
from ..cluster.addresses import measure_nodes
from ..cluster.assembly import Assembly
from ..cluster.gathering import FIRST_LOOK_S, choose
from ..cluster.roster import SeenNode
from ..cluster_report import NODE_COLUMNS, Addresses, node_row, nodes_json, standing_lines
from ..edge import print_json, reported
from ..looking import LookFlags, Looking, looking

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

_WATCH_S = 1.0


def nodes(
    node: cluster_options.Nodes = None,
    *,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    watch: cluster_options.Watch = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the nodes around, or the named ones: layers, cap, memory, distance, state, and what is missing.

    Exit code 4 when a named one does not answer. --watch --json prints one object a line.
    """
    with reported(as_json), looking(LookFlags(tuple(node or ()), fingerprint, insecure_lan)) as found:
        if watch:
            _watch(found, as_json)
            return
        found.discovery.wait(lambda _: bool(node) and found.discovery.is_settled, FIRST_LOOK_S)
        _settle(found)
        seen = _in_order(found.discovery.nodes())
        addresses = measure_nodes(found.access, {entry.facts.node_id: entry.places for entry in seen})
        _show(found, seen, addresses, as_json)
        if any(entry.is_static for entry in found.discovery.silent()):
            raise typer.Exit(NodeUnreachable.exit_code)


def _in_order(seen: Sequence[SeenNode]) -> list[SeenNode]:
    return sorted(seen, key=lambda entry: (entry.facts.first_layer, entry.facts.name, entry.facts.node_id))


def _settle(found: Looking) -> None:
    # An address that was heard of a moment ago has not answered yet.
    found.discovery.wait(lambda _: found.discovery.is_settled, FIRST_LOOK_S)


def _show(found: Looking, seen: Sequence[SeenNode], addresses: Addresses, as_json: bool) -> None:
    silent = [entry for entry in found.discovery.silent() if entry.is_static]
    assembly, problem = _assembly(seen, found.flags.fingerprint)
    if as_json:
        print_json(nodes_json(seen, silent, addresses, assembly, problem))
        return
    from ..terminal.tables import print_rows

    if seen:
        print_rows(NODE_COLUMNS, [node_row(s, addresses.get(s.facts.node_id, ())) for s in seen], sys.stdout)
    else:
        print("no node answers: start streamoe-node, or name one with --node host:port")
    for line in standing_lines(seen, silent, assembly, problem):
        print(line)


def _assembly(seen: Sequence[SeenNode], fingerprint: str | None) -> tuple[Assembly | None, StreamoeError | None]:
    try:
        return choose(seen, fingerprint), None
    except StreamoeError as error:
        return None, error


def _watch(found: Looking, as_json: bool) -> None:
    if as_json:
        while True:
            time.sleep(_WATCH_S)
            _show(found, _in_order(found.discovery.nodes()), {}, as_json=True)
    from rich.live import Live

    with Live(auto_refresh=False, screen=sys.stdout.isatty()) as live:
        while True:
            time.sleep(_WATCH_S)
            live.update(_table(found), refresh=True)


def _table(found: Looking) -> ConsoleRenderable:
    from rich.console import Group
    from rich.text import Text

    from ..terminal.tables import rows_table

    seen = _in_order(found.discovery.nodes())
    assembly, problem = _assembly(seen, found.flags.fingerprint)
    lines = standing_lines(seen, found.discovery.silent(), assembly, problem)
    return Group(rows_table(NODE_COLUMNS, [node_row(s, ()) for s in seen]), *map(Text, lines))
