"""The `streamoe` command line: which commands there are.

Owns the top level only: each command is a module of commands/, each option is defined in options.py or in
the node's shared_options.py.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from .commands.bench import bench
from .commands.chat import chat
from .commands.convert import convert
from .commands.doctor import doctor
from .commands.plan import plan
from .commands.pull_band import pull_band
from .commands.serve import serve
from .commands.tier_sim import tier_sim
from .commands.verify import verify
from .edge import EXIT_CODES

app = typer.Typer(
    name="streamoe",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
for command in (chat, serve, plan, convert, verify, doctor):
    app.command(epilog=EXIT_CODES)(command)
app.command("pull-band", epilog=EXIT_CODES)(pull_band)
app.command("tier-sim", epilog=EXIT_CODES)(tier_sim)
app.add_typer(bench, name="bench")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # 1 MiB of modules that nothing else needs

        print(f"streamoe {version('streamoe')}")
        raise typer.Exit


@app.callback()
def _streamoe(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run a Mixture-of-Experts model larger than the memory you grant it: a hard cap, planned to the byte."""


def main() -> None:
    """The entry point of `streamoe`."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is shown as "?"
            stream.reconfigure(errors="replace")
    app()
