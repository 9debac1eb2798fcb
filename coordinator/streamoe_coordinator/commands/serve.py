"""`streamoe serve`: answers over HTTP, behind the APIs that people's tools speak, and a page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import format_size, parse_size
from streamoe_node import shared_options
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags, band_options

from .. import options
from ..edge import reported

if TYPE_CHECKING:
    from streamoe_engine.band import BandOptions

    from ..runs_tokens import RunsSequences
    from ..serving.run import Listening
    from ..serving.server import ServerFlags

EMBEDDED_NAME = "streamoe-embedded"
DEFAULT_SEQUENCES, DEFAULT_QUEUE, DEFAULT_PORT, DEFAULT_GRACE_S = 2, 64, 8080, 20.0
_DEFAULT_CHECKPOINTS, _DEFAULT_CHECKPOINT_TOKENS = 2, 1024


def serve(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    sequences: options.Sequences = DEFAULT_SEQUENCES,
    checkpoints: options.Checkpoints = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    head: options.Head = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = DEFAULT_PORT,
    api_key: options.ApiKey = None,
    allow_host: options.AllowHost = None,
    cors_origin: options.CorsOrigin = None,
    queue: options.Queue = DEFAULT_QUEUE,
    grace: options.Grace = DEFAULT_GRACE_S,
    alias: options.Alias = None,
    grammar: options.Grammar = True,
    yes: options.Yes = False,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    policy: shared_options.Policy = None,
    reader_threads: shared_options.ReaderThreads = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    log_json: options.LogJson = False,
) -> None:
    """Serve a model under a memory cap: OpenAI's, Anthropic's and Ollama's APIs, and a chat page."""
    with reported():
        from ..serving.server import ServerFlags

        flags = ServerFlags(
            host, port, api_key, allow_host, cors_origin, queue, grace, alias, has_grammar=grammar, log_json=log_json
        )
        engine = EngineFlags(
            budget, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend, head, sequences
        )
        flags.access()
        listening = flags.listen()
        try:
            folder = resolve_model(model, may_convert=yes)
            name = EMBEDDED_NAME if model is None else model.resolve().name
            serve_here(folder, name, engine, flags, listening, checkpoints, is_embedded=model is None)
        finally:
            listening.socket.close()


def serve_here(
    folder: Path,
    name: str,
    engine: EngineFlags,
    flags: ServerFlags,
    listening: Listening,
    checkpoints: str | None,
    *,
    is_embedded: bool,
) -> None:
    """Serve a model of this process until a signal. checkpoints: a size as typed, None for the usual one."""
    # All that costs memory is imported and loaded before the plan, which then counts it.
    from ..serving.local_band import LocalBand
    from ..serving.server import load_text_side, serve_model
    from ..terminal.tables import print_plan
    from ..text import load_text

    manifest = read_manifest(folder)
    text, text_bytes = load_text(folder)
    side = load_text_side(folder, manifest, text, text_bytes, has_grammar=flags.has_grammar)
    num_sequences = engine.sequences or 1

    def with_checkpoints(num_bytes: int) -> BandOptions:
        extra = (("requests", flags.request_bytes(num_sequences)), ("checkpoints", num_bytes))
        return band_options(engine, folder, side.num_bytes, is_embedded=is_embedded, extra_bytes=extra)

    options, checkpoint_bytes = _chosen(folder, with_checkpoints, checkpoints)

    @contextmanager
    def opened() -> Iterator[RunsSequences]:
        from streamoe_engine.band import Band

        with Band.open(folder, options) as band:
            yield LocalBand(band)

    def show(band: RunsSequences) -> None:
        for status in band.bands():
            if status.plan is not None:
                print_plan(status.plan, sys.stdout)

    serve_model(
        name,
        side,
        opened,
        flags,
        listening,
        num_sequences=num_sequences,
        checkpoint_bytes=checkpoint_bytes,
        when_open=show,
    )


def _chosen(folder: Path, with_checkpoints: Callable[[int], BandOptions], given: str | None) -> tuple[BandOptions, int]:
    # The engine's options, and the bytes for checkpoints within them.
    from streamoe_engine.band import plan_for

    if given is not None:
        num_bytes = parse_size(given)
        return with_checkpoints(num_bytes), num_bytes
    num_bytes = _usual_checkpoint_bytes(folder, with_checkpoints(0))
    options = with_checkpoints(num_bytes)
    try:
        plan_for(folder, options)
    except PlanDoesNotFit:
        print(
            f"no room for checkpoints ({format_size(num_bytes)}): prompts are read from their beginning",
            file=sys.stderr,
        )
        return with_checkpoints(0), 0
    return options, num_bytes


def _usual_checkpoint_bytes(folder: Path, options: BandOptions) -> int:
    from streamoe_engine.band_options import plan_request
    from streamoe_engine.plan import snapshot_bytes
    from streamoe_engine.store import ModelStore

    store = ModelStore(folder)
    try:
        request = plan_request(store, options)
        tokens = min(_DEFAULT_CHECKPOINT_TOKENS, options.ctx_tokens)
        return _DEFAULT_CHECKPOINTS * snapshot_bytes(store.manifest, request, tokens)
    finally:
        store.close()
