"""`streamoe convert`: a checkpoint becomes a model folder, once."""

from __future__ import annotations

import sys
from typing import Literal, cast

from streamoe_engine.sizes import format_size

from .. import options
from ..edge import SCHEMA, print_json, reported
from ..terminal.files import FilesProgress


def convert(
    source: options.Source,
    target: options.Target,
    *,
    quantize: options.Quantize = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Convert a checkpoint to a model folder: in little memory, and from where an interrupted run stopped."""
    with reported(as_json):
        from streamoe_engine.checkpoint import ConvertOptions
        from streamoe_engine.checkpoint import convert as convert_checkpoint

        chosen = ConvertOptions(quantize=cast("Literal['auto', 'keep']", quantize))  # which checks it
        with FilesProgress("converting", sys.stderr) as progress:
            manifest = convert_checkpoint(source, target, chosen, progress.update)
        num_bytes = sum(entry.num_bytes for entry in manifest.files.values())
        if as_json:
            print_json({"schema": SCHEMA, "folder": str(target), "family": manifest.family, "num_bytes": num_bytes})
        else:
            print(f"{target}: {manifest.family}, {manifest.num_layers} layers, {format_size(num_bytes)}")
