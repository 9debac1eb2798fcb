"""The `streamoe-coord` command line: which commands there are.

Owns the top level only: each command is a module of coord_commands/, each option is defined in options.py,
cluster_options.py or the node's shared_options.py.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from .coord_commands.chat import chat
from .coord_commands.doctor import doctor
from .coord_commands.init import init
from .coord_commands.nodes import nodes
from .coord_commands.pair import pair
from .coord_commands.plan import plan
from .coord_commands.serve import serve
from .coord_commands.snapshot import snapshot
from .edge import EXIT_CODES

app = typer.Typer(
    name="streamoe-coord",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
for command in (chat, serve, nodes, plan, init, pair, doctor):
    app.command(epilog=EXIT_CODES)(command)
app.add_typer(snapshot, name="snapshot")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"streamoe-coord {version('streamoe')}")
        raise typer.Exit


@app.callback()
def _streamoe_coord(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run one model over several machines, each with a band of its layers: finds the nodes, chats, plans, saves."""


def main() -> None:
    """The entry point of `streamoe-coord`."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else it tells of every handshake that fails
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # else a traceback for each interface that cannot send
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is shown as "?"
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()
