"""`streamoe serve`: answers over HTTP, behind the APIs that people's tools speak, and a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.fingerprint import fingerprint
from streamoe_engine.manifest import read_manifest
from streamoe_engine.sizes import KIB, format_size, parse_size

from .. import options
from ..edge import reported
from ..models import resolve_model
from ..opening import EngineFlags, band_options

if TYPE_CHECKING:
    from streamoe_engine.band import BandOptions

    from ..serving.grammar import Grammars
    from ..serving.local_band import LocalBand
    from ..serving.run import Listening
    from ..serving.security import Access
    from ..text import Text

EMBEDDED_NAME = "streamoe-embedded"
DEFAULT_SEQUENCES, DEFAULT_QUEUE, DEFAULT_PORT, DEFAULT_GRACE_S = 2, 64, 8080, 20.0
# Measured with 200 clients at once: buffers of a connection, and the tasks that serve it.
_CONNECTION_BYTES = 96 * KIB
# A body is there as bytes, as text and as what is read of it; then its tokens, one prompt at a time.
_COPIES_OF_A_BODY = 3
_DEFAULT_CHECKPOINTS, _DEFAULT_CHECKPOINT_TOKENS = 2, 1024


@dataclass(frozen=True, slots=True)
class _Flags:
    """What the command line says of the server."""

    host: str
    port: int
    api_key: str | None
    allow_host: str | None
    cors_origin: str | None
    queue: int
    checkpoints: str | None
    grace_s: float
    alias: str | None
    has_grammar: bool
    log_json: bool


def serve(
    model: options.Model = None,
    *,
    budget: options.Budget = None,
    ctx: options.Ctx = None,
    sequences: options.Sequences = DEFAULT_SEQUENCES,
    checkpoints: options.Checkpoints = None,
    kv: options.Kv = None,
    chunk: options.Chunk = None,
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
    guess: options.Guess = None,
    guess_width: options.GuessWidth = None,
    policy: options.Policy = None,
    reader_threads: options.ReaderThreads = None,
    threads: options.Threads = None,
    backend: options.Backend = None,
    log_json: options.LogJson = False,
) -> None:
    """Serve a model under a memory cap: OpenAI's, Anthropic's and Ollama's APIs, and a chat page."""
    with reported():
        flags = _Flags(
            host, port, api_key, allow_host, cors_origin, queue, checkpoints, grace, alias, grammar, log_json
        )
        engine = EngineFlags(
            budget, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend, head, sequences
        )
        _serve(model, engine, flags, may_convert=yes)


def _serve(model: Path | None, engine: EngineFlags, flags: _Flags, *, may_convert: bool) -> None:
    from ..serving.run import listen
    from ..serving.security import Access

    access = Access(flags.host, _listed(flags.allow_host), _listed(flags.cors_origin), flags.api_key or None)
    access.check()
    listening = listen(flags.host, flags.port)
    try:
        folder = resolve_model(model, may_convert=may_convert)
        name = EMBEDDED_NAME if model is None else model.resolve().name
        _run(folder, name, engine, flags, access, listening, is_embedded=model is None)
    finally:
        listening.socket.close()


def _run(
    folder: Path,
    name: str,
    engine: EngineFlags,
    flags: _Flags,
    access: Access,
    listening: Listening,
    *,
    is_embedded: bool,
) -> None:
    # All that costs memory is imported and loaded before the plan, which then counts it.
    from ..sampling import default_params
    from ..serving.app import make_app
    from ..serving.bodies import MAX_BODY_BYTES, Bodies
    from ..serving.fittings import ModelFittings
    from ..serving.log import set_up
    from ..serving.run import OTHER_CONNECTIONS
    from ..serving.run import serve as run_server
    from ..serving.scheduler import Scheduler, SchedulerOptions
    from ..serving.served import Served
    from ..serving.status import Watch
    from ..terminal.tables import print_plan
    from ..text import load_text

    set_up(as_json=flags.log_json)
    manifest = read_manifest(folder)
    text, text_bytes = load_text(folder)
    grammars, grammar_bytes = _grammars(folder, manifest.vocab_size, text, flags.has_grammar)
    num_connections = (engine.sequences or 1) + flags.queue + OTHER_CONNECTIONS
    request_bytes = _COPIES_OF_A_BODY * MAX_BODY_BYTES + num_connections * _CONNECTION_BYTES
    options, checkpoint_bytes = _band_options(
        folder, engine, flags, text_bytes + grammar_bytes, request_bytes, is_embedded=is_embedded
    )
    scheduler = Scheduler(
        lambda: _opened(folder, options),
        text.tokenizer,
        SchedulerOptions(max_waiting=flags.queue, checkpoint_bytes=checkpoint_bytes),
    )
    served = Served(
        name,
        text,
        ModelFittings(text, grammars),
        scheduler,
        default_params(folder),
        manifest.vocab_size,
        aliases=_listed(flags.alias),
        family=manifest.family,
        model_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        digest=fingerprint(manifest),
    )
    watch = Watch(
        served,
        needs_key=access.api_key is not None,
        max_waiting=flags.queue,
        checkpoint_bytes=checkpoint_bytes,
    )

    def tell() -> None:
        for band in scheduler.band.bands() if scheduler.band is not None else ():
            if band.plan is not None:
                print_plan(band.plan, sys.stdout)
        print(f"serving {name} at {listening.url}", flush=True)

    run_server(
        make_app(served, access, watch, Bodies()),
        listening,
        scheduler,
        max_connections=num_connections,
        grace_s=flags.grace_s,
        when_open=tell,
    )


def _band_options(
    folder: Path, engine: EngineFlags, flags: _Flags, text_bytes: int, request_bytes: int, *, is_embedded: bool
) -> tuple[BandOptions, int]:
    # The engine's options, and the bytes for checkpoints within them.
    from streamoe_engine.band import plan_for

    def with_checkpoints(num_bytes: int) -> BandOptions:
        extra = (("requests", request_bytes), ("checkpoints", num_bytes))
        return band_options(engine, folder, text_bytes, is_embedded=is_embedded, extra_bytes=extra)

    if flags.checkpoints is not None:
        num_bytes = parse_size(flags.checkpoints)
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


@contextmanager
def _opened(folder: Path, options: BandOptions) -> Iterator[LocalBand]:
    from streamoe_engine.band import Band

    from ..serving.local_band import LocalBand

    with Band.open(folder, options) as band:
        yield LocalBand(band)


def _grammars(folder: Path, vocab_size: int, text: Text, is_wanted: bool) -> tuple[Grammars | None, int]:
    from ..serving.grammar import GrammarMissing, load_grammars

    if not is_wanted:
        return None, 0
    try:
        return load_grammars(folder, vocab_size, sorted(text.tokenizer.eos_ids))
    except GrammarMissing:
        return None, 0  # a request that needs it is told how to install it


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
