"""`streamoe-coord pair`: a node that shows a code becomes a member of the cluster."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from streamoe_engine.errors import UsageError

from .. import cluster_options, options
from ..edge import SCHEMA, print_json, reported

Where = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where `streamoe-node pair` says it waits.")]


def pair(where: Where, *, code: cluster_options.Code = None, as_json: options.AsJson = False) -> None:
    """Admit a node that shows a pairing code; asks for the code where --code is left out."""
    with reported(as_json):
        from streamoe_node.security.code import normal_code
        from streamoe_node.security.folder import cluster_folder, load_authority
        from streamoe_node.security.pairing import CoordinatorPairing
        from streamoe_node.security.pairing_link import pair_with

        from ..cluster.places import parse_place

        place, authority = parse_place(where), load_authority(cluster_folder())
        typed = normal_code(code if code is not None else _asked())
        paired = pair_with(place.host, place.port, lambda channel: CoordinatorPairing(authority, typed, channel))
        if as_json:
            print_json({"schema": SCHEMA, "node_id": paired.node_id, "name": paired.node_name})
        else:
            print(f"{paired.node_name} ({paired.node_id}) is a member now; start it there as it says")


def _asked() -> str:
    if not sys.stdin.isatty():
        raise UsageError("--code is missing", "give the code that the node shows: --code K7QM-2XPD")
    print("code: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
