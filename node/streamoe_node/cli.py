"""The `streamoe-node` command line: serve a band, or pair with a coordinator.

Owns the top level only; each option is defined in options.py or shared_options.py.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from . import options, shared_options
from .edge import EXIT_CODES, reported
from .supervise import FLAG, run_child

app = typer.Typer(
    name="streamoe-node",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"streamoe-node {version('streamoe')}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=EXIT_CODES)
def node(
    context: typer.Context,
    *,
    model: options.Model = None,
    layers: options.Layers = None,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    max_sessions: options.MaxSessions = 4,
    step_tokens: options.StepTokens = None,
    yes: options.Yes = False,
    host: options.Host = None,
    port: options.Port = 7650,
    name: options.Name = None,
    insecure_lan: options.InsecureLan = False,
    announce: options.Announce = True,
    snapshots: options.Snapshots = None,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    policy: shared_options.Policy = None,
    reader_threads: shared_options.ReaderThreads = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    as_json: options.AsJson = False,
    _supervised: options.Supervised = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve a band of a model's layers to coordinators, under a hard memory cap."""
    if context.invoked_subcommand is not None:
        return
    with reported(as_json):
        # Imported here: what they cost is then part of the plan, and --help is quick.
        from .opening import EngineFlags
        from .serve import Ask, serve

        engine = (guess, guess_width, policy, reader_threads, threads, backend)
        flags = EngineFlags(budget, ctx, kv, layers, chunk, *engine)
        serve(
            Ask(model, max_sessions, step_tokens, yes, host, port, name, insecure_lan, announce, snapshots, as_json),
            flags,
        )


@app.command(epilog=EXIT_CODES)
def pair(
    *,
    name: options.Name = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to wait; left out: on every interface.")
    ] = "",
    port: Annotated[int, typer.Option("--port", min=0, metavar="PORT", help="The port; 0: a free one.")] = 7422,
    as_json: options.AsJson = False,
) -> None:
    """Show a one-time code and wait for the coordinator that is told it; then the two speak over TLS."""
    with reported(as_json):
        from .pair import pair as run_pair
        from .serve import EXIT_INTERRUPTED

        if not run_pair(name, host, port, as_json=as_json):
            raise typer.Exit(EXIT_INTERRUPTED)


def main() -> None:
    """The entry point of `streamoe-node`."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else it tells of every stranger who knocks
    if FLAG in sys.argv[1:]:
        sys.exit(run_child(sys.argv[1:]))
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # else a traceback for each interface that cannot send
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is shown as "?"
            stream.reconfigure(errors="replace")
    app()
