"""`streamoe-coord plan`: each node's plan, and how fast 1, 2, ... N of these nodes would be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from streamoe_engine.manifest import read_manifest
from streamoe_engine.plan import PlanRequest
from streamoe_engine.sizes import format_size
from streamoe_node.errors import NodeUnreachable

from .. import cluster_options, options
from ..cluster.predict import ASSUMPTIONS, ModelShape, Prediction, advice, predict
from ..cluster.speeds import speed_of
from ..cluster_report import PREDICTION_COLUMNS, cluster_plan_json, prediction_row, ready_line
from ..edge import print_json, reported
from ..looking import LookFlags, looking, tell_on_stderr

if TYPE_CHECKING:
    from ..chaining import OpenedChain


def plan(
    node: cluster_options.Nodes = None,
    *,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    wait: cluster_options.Wait = 20.0,
    model: cluster_options.Model = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure the nodes with a chunk and some tokens; show each one's plan and what 1 to N of them would do."""
    with reported(as_json), looking(LookFlags(tuple(node or ()), fingerprint, insecure_lan, wait)) as found:
        from ..chaining import opened_chain

        gathered = found.gather(tell_on_stderr)
        if gathered is None:
            raise NodeUnreachable(
                "no node announces itself here", "start streamoe-node, or name nodes with --node host:port"
            )
        with opened_chain(found, gathered, model, {}, tell_on_stderr) as opened:
            predictions = _predictions(opened)
            if as_json:
                facts = opened.facts
                print_json(cluster_plan_json(facts, predictions, opened.canary, gathered.addresses))
            else:
                _print(opened, predictions)


def _predictions(opened: OpenedChain) -> tuple[Prediction, ...]:
    first = opened.canary.bands[0].facts
    manifest = read_manifest(opened.folder)
    request = PlanRequest(1, compute_dtype=first.compute_dtype, backend=first.backend)  # type: ignore[arg-type]
    shape = ModelShape.of(manifest, request)
    return predict(shape, [speed_of(shape, measure) for measure in opened.canary.bands])


def _print(opened: OpenedChain, predictions: tuple[Prediction, ...]) -> None:
    from ..terminal.tables import print_rows

    facts = opened.facts
    columns = ("item", *(f"{node.name} {node.first_layer}-{node.last_layer}" for node in facts))
    sizes = [{row.name: row.num_bytes for row in node.plan} for node in facts]
    names = dict.fromkeys(name for rows in sizes for name in rows)
    rows = [(name, *(format_size(of_node[name]) if name in of_node else "" for of_node in sizes)) for name in names]
    print_rows(columns, [*rows, ("cap", *(format_size(node.cap_bytes) for node in facts))], sys.stdout)
    print(ready_line(facts, opened.canary))
    called = {node.node_id: node.name for node in facts}
    print_rows(PREDICTION_COLUMNS, [prediction_row(entry, called) for entry in predictions], sys.stdout)
    for line in advice(predictions):
        print(line)
    print(f"assumed: {'; '.join(ASSUMPTIONS)}")
