"""`streamoe pull-band`: the files of some layers, from a node that has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamoe_engine.errors import UsageError
from streamoe_engine.sizes import format_size
from streamoe_node.flags import parse_layers

from .. import cluster_options, options
from ..edge import SCHEMA, print_json, reported
from ..terminal.files import FilesProgress

Peer = Annotated[str, typer.Argument(help="A node that has the layers: host:port.")]
Folder = Annotated[Path, typer.Argument(help="The model folder to write; one of the same model gets more layers.")]


def pull_band(
    peer: Peer,
    folder: Folder,
    *,
    layers: options.Layers = None,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    as_json: options.AsJson = False,
) -> None:
    """Copy only the files that layers A-B need from a node: resumed where it stopped, each checked by SHA-256."""
    with reported(as_json):
        from ..cluster.access import Access
        from ..cluster.band_pull import pull_band as pull
        from ..cluster.node_client import NodeClient
        from ..cluster.places import parse_place

        if layers is None:
            raise UsageError("--layers is missing: which layers to copy", "for example --layers 0-19")
        place, wanted = parse_place(peer), parse_layers(layers)
        access = Access.of_user(insecure_lan=insecure_lan)
        with NodeClient(access, place) as client, FilesProgress("copying", sys.stderr) as progress:
            pulled = pull(
                client,
                folder,
                wanted,
                wanted=fingerprint,
                report=progress.update,
            )
        num_bytes = sum(pulled.manifest.files[name].num_bytes for name in pulled.files)
        if as_json:
            print_json(
                {
                    "schema": SCHEMA,
                    "folder": str(folder),
                    "family": pulled.manifest.family,
                    "layers": list(wanted),
                    "files": list(pulled.files),
                    "num_bytes": num_bytes,
                    "copied_bytes": pulled.copied_bytes,
                }
            )
        else:
            print(
                f"{folder}: layers {layers} of {pulled.manifest.family}, {len(pulled.files)} files, "
                f"{format_size(num_bytes)} ({format_size(pulled.copied_bytes)} copied now)"
            )
