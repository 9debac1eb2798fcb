"""`streamoe-coord`, the command for a model over several machines. Nothing of it is built: it says so and fails."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import NoReturn


def main() -> NoReturn:
    """The entry point of `streamoe-coord`. Exits with 1, or 0 after --help and --version."""
    parser = argparse.ArgumentParser(
        prog="streamoe-coord",
        description="One model over several machines, each with a band of its layers. "
        "Not built yet: use `streamoe chat` on one machine.",
    )
    parser.add_argument("--version", action="version", version=f"streamoe-coord {version('streamoe')}")
    parser.parse_known_args()
    sys.exit("error: streamoe-coord is not built yet\nuse `streamoe chat` on one machine")
