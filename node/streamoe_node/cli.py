"""`streamoe-node`, the command that serves one band to a coordinator. Nothing of it is built: it says so and fails."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import NoReturn


def main() -> NoReturn:
    """The entry point of `streamoe-node`. Exits with 1, or 0 after --help and --version."""
    parser = argparse.ArgumentParser(
        prog="streamoe-node",
        description="Serves a band of a model's layers to a coordinator on another machine. "
        "Not built yet: use `streamoe chat` on one machine.",
    )
    parser.add_argument("--version", action="version", version=f"streamoe-node {version('streamoe')}")
    parser.parse_known_args()
    sys.exit("error: streamoe-node is not built yet\nuse `streamoe chat` on one machine")
