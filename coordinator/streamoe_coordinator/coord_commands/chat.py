"""`streamoe-coord chat`: a conversation with a model that lies on several machines, or on this one alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamoe_node import shared_options
from streamoe_node.errors import NodeUnreachable
from streamoe_node.opening import EngineFlags

from .. import cluster_options, options
from ..edge import EXIT_INTERRUPTED, reported
from ..looking import LookFlags, looking, tell_on_stderr
from ..talking import Ask

if TYPE_CHECKING:
    from streamoe_proto.messages import NodeFacts

    from ..cluster.ports import Seat
    from ..coord_talk import Files
    from ..local_help import LocalHelp


@dataclass(frozen=True, slots=True)
class Flags:
    """All that the command line says."""

    look: LookFlags
    engine: EngineFlags
    model: Path | None
    given: dict[str, float | int | None]


def chat(
    node: cluster_options.Nodes = None,
    *,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    wait: cluster_options.Wait = 20.0,
    model: cluster_options.Model = None,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    system: options.System = "",
    thinking: options.Thinking = None,
    raw: options.Raw = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    repetition_penalty: options.RepetitionPenalty = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    restore: cluster_options.Restore = None,
    save: cluster_options.SaveTo = None,
    prompt: options.Prompt = None,
    as_json: options.AsJson = False,
) -> None:
    """Chat with a model over several nodes: at the terminal, or one answer to --prompt.

    Nodes that announce themselves are found, or name them with --node. With no node around and a --budget, the model
    runs in this process alone.
    """
    with reported(as_json):
        from ..coord_talk import Files

        ask = Ask(prompt, system, thinking, raw, as_json)
        ask.check()
        given = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "repetition_penalty": repetition_penalty,
            "max_tokens": max_tokens,
        }
        flags = Flags(
            LookFlags(tuple(node or ()), fingerprint, insecure_lan, wait),
            EngineFlags(budget, ctx, kv, None, chunk, threads=threads, backend=backend),
            model,
            given,
        )
        reason = talk(flags, ask, Files(restore, save))
    if reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)


def talk(flags: Flags, ask: Ask, files: Files) -> str:
    """Find nodes, or open the band here; then answer or converse. Returns why the last answer ended, or ""."""
    from ..coord_talk import talk_over_chain
    from ..local_help import LocalHelp

    with ExitStack() as open_things:
        found = open_things.enter_context(looking(_look_of(flags)))
        helper, fill = None, None
        if flags.engine.budget is not None:
            helper = open_things.enter_context(LocalHelp(flags.engine, flags.model))
            fill = partial(_fill, helper)
        gathered = found.gather(tell_on_stderr, fill)
        if gathered is not None:
            return talk_over_chain(found, gathered, flags.model, flags.given, ask, files, helper)
    if flags.engine.budget is None:
        raise NodeUnreachable(
            "no node of this model answers here" if flags.model else "no node announces itself here",
            "start streamoe-node, name nodes with --node host:port, or run the model in this process with --budget",
        )
    return _talk_alone(flags, ask, files)


def _fill(helper: LocalHelp, nodes: Sequence[NodeFacts]) -> Seat | None:
    from ..local_help import the_gap

    gap = the_gap(nodes)
    if gap is None:
        return None
    tell_on_stderr(f"layers {gap[0]}-{gap[1]} are on no node: opening them in this process")
    return helper.open(gap, nodes[0])


def _look_of(flags: Flags) -> LookFlags:
    """A model that is named is the one to look for."""
    from streamoe_engine.fingerprint import fingerprint
    from streamoe_engine.manifest import read_manifest
    from streamoe_node.models import resolve_model

    if flags.model is None or flags.look.fingerprint is not None or flags.look.nodes:
        return flags.look
    return replace(flags.look, fingerprint=fingerprint(read_manifest(resolve_model(flags.model))))


def _talk_alone(flags: Flags, ask: Ask, files: Files) -> str:
    from ..coord_talk import talk_over_band

    tell_on_stderr("no node answers: one band in this process")
    return talk_over_band(flags.model, flags.engine, flags.given, ask, files)
