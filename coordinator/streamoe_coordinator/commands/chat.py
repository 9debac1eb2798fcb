"""`streamoe chat`: a conversation at the terminal, or one answer to --prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamoe_node import shared_options
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags, band_options

from .. import options
from ..edge import EXIT_INTERRUPTED, print_json, reported
from ..talking import Ask, Opened, answer_once, session_of

if TYPE_CHECKING:
    from streamoe_engine.band import Band

    from ..events import Shown


@dataclass(frozen=True, slots=True)
class OpenedBand(Opened):
    """A model ready to answer, in one band of this process."""

    band: Band


def chat(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    system: options.System = "",
    thinking: options.Thinking = None,
    raw: options.Raw = False,
    yes: options.Yes = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    repetition_penalty: options.RepetitionPenalty = None,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    policy: shared_options.Policy = None,
    reader_threads: shared_options.ReaderThreads = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    head: options.Head = None,
    prompt: options.Prompt = None,
    as_json: options.AsJson = False,
) -> None:
    """Chat with a model under a memory cap: at the terminal, or one answer to --prompt."""
    with reported(as_json):
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
        flags = EngineFlags(
            budget, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend, head
        )
        folder = resolve_model(model, may_convert=yes)
        if prompt is None:
            _chat_at_terminal(folder, flags, given, ask, is_embedded=model is None)
            return
        with opened_band(folder, flags, given, is_embedded=model is None) as band:
            shown = _answer_once(band, ask, prompt)
    if shown.finished.reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)


@contextmanager
def opened_band(
    folder: Path,
    flags: EngineFlags,
    given: dict[str, float | int | None],
    *,
    is_embedded: bool,
    holds_snapshot: bool = False,
) -> Iterator[OpenedBand]:
    """A band of this process, with the model's text and sampling. holds_snapshot: its plan has a row for one.

    Raises what opening them raises.
    """
    from streamoe_engine.band import Band

    from ..sampling import default_params, override
    from ..text import load_text

    params = override(default_params(folder), **given)
    text, tokenizer_bytes = load_text(folder)
    rows = _snapshot_rows(folder, flags) if holds_snapshot else ()
    asked = band_options(flags, folder, tokenizer_bytes, is_embedded=is_embedded, extra_bytes=rows)
    with Band.open(folder, asked) as band:
        yield OpenedBand(band, text, params)


def _snapshot_rows(folder: Path, flags: EngineFlags) -> tuple[tuple[str, int], ...]:
    from streamoe_engine.band import plan_request
    from streamoe_engine.plan import snapshot_bytes
    from streamoe_engine.store import ModelStore

    store = ModelStore(folder)
    # Any cap does here: the request only says what a state is like.
    asked = band_options(replace(flags, budget=flags.budget or "1GiB"), folder, 0, is_embedded=False)
    request = plan_request(store, asked)
    num_bytes = snapshot_bytes(store.manifest, request, request.ctx_tokens)
    return (("snapshot being saved or loaded", num_bytes),)


def _chat_at_terminal(
    folder: Path, flags: EngineFlags, given: dict[str, float | int | None], ask: Ask, *, is_embedded: bool
) -> None:
    # Imported before the band opens: what they cost is then part of the plan.
    from ..terminal.chat import TerminalChat
    from ..terminal.reader import make_reader
    from ..terminal.tables import print_plan

    reader = make_reader()
    with opened_band(folder, flags, given, is_embedded=is_embedded) as opened:
        band = opened.band
        show_plan = partial(print_plan, band.plan)
        TerminalChat(band, session_of(opened, ask), reader, show_plan).run()


def _answer_once(opened: OpenedBand, ask: Ask, prompt: str) -> Shown:
    from ..report import answer_json, answer_line, promise
    from ..terminal.style import dim

    plan = opened.band.plan
    print(dim(promise(plan), sys.stderr), file=sys.stderr)
    shown = answer_once(opened, ask, prompt)
    if ask.as_json:
        print_json(answer_json(shown, plan))
    print(dim(answer_line(shown.finished), sys.stderr), file=sys.stderr)
    return shown
