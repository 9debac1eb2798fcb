"""`streamoe-coord serve`: as `streamoe serve`, with a model that lies on several machines, or on this one alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamoe_engine.manifest import read_manifest
from streamoe_node import shared_options
from streamoe_node.errors import NodeUnreachable
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags

from .. import cluster_options, options
from ..commands.serve import DEFAULT_GRACE_S, DEFAULT_PORT, DEFAULT_QUEUE, DEFAULT_SEQUENCES, EMBEDDED_NAME, serve_here
from ..edge import reported
from ..looking import LookFlags, looking, tell_on_stderr
from .chat import Flags, _fill, _look_of

if TYPE_CHECKING:
    from ..cluster.gathering import Gathered
    from ..cluster.standing import HeardNode
    from ..local_help import LocalHelp
    from ..looking import Looking
    from ..runs_tokens import RunsSequences
    from ..serving.run import Listening
    from ..serving.server import ServerFlags


def serve(
    node: cluster_options.Nodes = None,
    *,
    fingerprint: cluster_options.Fingerprint = None,
    insecure_lan: cluster_options.InsecureLan = False,
    wait: cluster_options.Wait = 20.0,
    model: cluster_options.Model = None,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    sequences: options.Sequences = DEFAULT_SEQUENCES,
    checkpoints: options.Checkpoints = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = DEFAULT_PORT,
    api_key: options.ApiKey = None,
    allow_host: options.AllowHost = None,
    cors_origin: options.CorsOrigin = None,
    queue: options.Queue = DEFAULT_QUEUE,
    grace: options.Grace = DEFAULT_GRACE_S,
    alias: options.Alias = None,
    grammar: options.Grammar = True,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    log_json: options.LogJson = False,
) -> None:
    """Serve a model over several nodes: OpenAI's, Anthropic's and Ollama's APIs, and a chat page.

    As many answers are made together as every node has sessions for. With no node around and a --budget, the model
    runs in this process alone, and --sequences and --checkpoints count.
    """
    with reported():
        from ..serving.server import ServerFlags

        server = ServerFlags(
            host, port, api_key, allow_host, cors_origin, queue, grace, alias, has_grammar=grammar, log_json=log_json
        )
        engine = EngineFlags(budget, ctx, kv, None, chunk, threads=threads, backend=backend)
        flags = Flags(LookFlags(tuple(node or ()), fingerprint, insecure_lan, wait), engine, model, {})
        server.access()
        listening = server.listen()
        try:
            _serve(flags, server, listening, sequences, checkpoints)
        finally:
            listening.socket.close()


def _serve(flags: Flags, server: ServerFlags, listening: Listening, sequences: int, checkpoints: str | None) -> None:
    from ..local_help import LocalHelp

    with ExitStack() as open_things:
        found = open_things.enter_context(looking(_look_of(flags)))
        helper, fill = None, None
        if flags.engine.budget is not None:
            helper = open_things.enter_context(LocalHelp(flags.engine, flags.model))
            fill = partial(_fill, helper)
        gathered = found.gather(tell_on_stderr, fill)
        if gathered is not None:
            _serve_chain(found, gathered, flags.model, helper, server, listening)
            return
    if flags.engine.budget is None:
        raise NodeUnreachable(
            "no node of this model answers here" if flags.model else "no node announces itself here",
            "start streamoe-node, name nodes with --node host:port, or run the model in this process with --budget",
        )
    tell_on_stderr("no node answers: one band in this process")
    folder = resolve_model(flags.model)
    engine = replace(flags.engine, sequences=sequences)
    name = _name(flags.model)
    serve_here(folder, name, engine, server, listening, checkpoints, is_embedded=flags.model is None)


def _serve_chain(
    found: Looking,
    gathered: Gathered,
    model: Path | None,
    helper: LocalHelp | None,
    server: ServerFlags,
    listening: Listening,
) -> None:
    from ..chaining import opened_chain
    from ..cluster_report import ready_line
    from ..serving.chain_sequences import ChainSequences
    from ..serving.server import load_text_side, serve_model

    with opened_chain(found, gathered, model, {}, tell_on_stderr, helper) as opened:
        tell_on_stderr(ready_line(opened.facts, opened.canary))

        def heard() -> Sequence[HeardNode]:
            opened.refresh()
            return opened.heard

        @contextmanager
        def chained() -> Iterator[RunsSequences]:
            yield ChainSequences(opened.band, heard)

        manifest = read_manifest(opened.folder)
        serve_model(
            _name(model) if model is not None else manifest.family,
            load_text_side(opened.folder, manifest, opened.text, 0, has_grammar=server.has_grammar),
            chained,
            server,
            listening,
            num_sequences=opened.band.num_sequences,
            checkpoint_bytes=0,
            when_open=lambda _: None,
        )


def _name(model: Path | None) -> str:
    return EMBEDDED_NAME if model is None else model.resolve().name
