"""`streamoe verify`: every file of a model folder against the manifest's size and SHA-256."""

from __future__ import annotations

import sys

from .. import options
from ..edge import SCHEMA, print_json, reported
from ..terminal.files import FilesProgress


def verify(model: options.Converted, *, as_json: options.AsJson = False) -> None:
    """Check every file of a model folder against the sizes and SHA-256 written when it was converted."""
    with reported(as_json):
        from streamoe_engine.checkpoint import verify_folder

        with FilesProgress("verifying", sys.stderr) as progress:
            verify_folder(model, progress.update)
        if as_json:
            print_json({"schema": SCHEMA, "folder": str(model), "ok": True})
        else:
            print(f"{model}: all files are as converted")
