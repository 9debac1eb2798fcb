"""`streamoe-coord snapshot save|restore FILE`: a conversation with its state, from all bands into one file and back."""

from __future__ import annotations

import typer

from streamoe_engine.errors import UsageError
from streamoe_node import shared_options
from streamoe_node.opening import EngineFlags

from .. import cluster_options, options
from ..edge import EXIT_CODES, EXIT_INTERRUPTED, reported
from ..looking import LookFlags
from ..talking import Ask

snapshot = typer.Typer(no_args_is_help=True, help="Save a conversation with its state, and go on with it anywhere.")


@snapshot.command(epilog=EXIT_CODES)
def save(
    file: cluster_options.SnapshotFile,
    *,
    node: cluster_options.Nodes = None,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    wait: cluster_options.Wait = 20.0,
    model: cluster_options.Model = None,
    budget: shared_options.Budget = None,
    system: options.System = "",
    max_tokens: options.MaxTokens = None,
    restore: cluster_options.Restore = None,
    prompt: options.Prompt = None,
    as_json: options.AsJson = False,
) -> None:
    """Answer --prompt, then write the conversation with the state that every band has of it."""
    from ..coord_talk import Files
    from .chat import Flags, talk

    with reported(as_json):
        if prompt is None:
            raise UsageError("--prompt is missing: what to say first", "in a running chat, /snapshot FILE saves it")
        look = LookFlags(tuple(node or ()), fingerprint, insecure_lan, wait)
        flags = Flags(look, EngineFlags(budget), model, {"max_tokens": max_tokens})
        reason = talk(flags, Ask(prompt, system, None, False, as_json), Files(restore, file))
    _end(reason)


@snapshot.command(epilog=EXIT_CODES)
def restore(
    file: cluster_options.SnapshotFile,
    *,
    node: cluster_options.Nodes = None,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    wait: cluster_options.Wait = 20.0,
    model: cluster_options.Model = None,
    budget: shared_options.Budget = None,
    max_tokens: options.MaxTokens = None,
    save: cluster_options.SaveTo = None,
    prompt: options.Prompt = None,
    as_json: options.AsJson = False,
) -> None:
    """Give every band its layers of a saved state, and go on: at the terminal, or with one answer to --prompt."""
    from ..coord_talk import Files
    from .chat import Flags, talk

    with reported(as_json):
        look = LookFlags(tuple(node or ()), fingerprint, insecure_lan, wait)
        flags = Flags(look, EngineFlags(budget), model, {"max_tokens": max_tokens})
        ask = Ask(prompt, "", None, False, as_json)
        ask.check()
        reason = talk(flags, ask, Files(file, save))
    _end(reason)


def _end(reason: str) -> None:
    if reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)
