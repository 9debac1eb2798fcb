"""`streamoe chat`: a conversation at the terminal, or one answer to --prompt."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamoe_engine.errors import UsageError

from .. import options
from ..edge import EXIT_INTERRUPTED, print_json, reported
from ..models import resolve_model
from ..opening import EngineFlags, band_options

if TYPE_CHECKING:
    from streamoe_engine.band import Band

    from ..events import Shown
    from ..sampling import SamplingParams
    from ..session import ChatSession
    from ..text import Text


@dataclass(frozen=True, slots=True)
class _Ask:
    """What is wanted of the model, apart from its engine."""

    prompt: str | None
    system: str
    thinking: bool | None
    is_raw: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Opened:
    """A model ready to answer."""

    band: Band
    text: Text
    params: SamplingParams


def chat(
    model: options.Model = None,
    *,
    budget: options.Budget = None,
    ctx: options.Ctx = None,
    kv: options.Kv = None,
    chunk: options.Chunk = None,
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
    guess: options.Guess = None,
    guess_width: options.GuessWidth = None,
    policy: options.Policy = None,
    reader_threads: options.ReaderThreads = None,
    threads: options.Threads = None,
    backend: options.Backend = None,
    prompt: options.Prompt = None,
    as_json: options.AsJson = False,
) -> None:
    """Chat with a model under a memory cap: at the terminal, or one answer to --prompt."""
    with reported(as_json):
        ask = _Ask(prompt, system, thinking, raw, as_json)
        _check(ask)
        given = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "repetition_penalty": repetition_penalty,
            "max_tokens": max_tokens,
        }
        flags = EngineFlags(budget, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend)
        folder = resolve_model(model, may_convert=yes)
        if prompt is None:
            _chat_at_terminal(folder, flags, given, ask, is_embedded=model is None)
            return
        with _opened(folder, flags, given, is_embedded=model is None) as opened:
            shown = _answer_once(opened, ask, prompt)
    if shown.finished.reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)


def _check(ask: _Ask) -> None:
    if ask.prompt is None and (ask.as_json or ask.is_raw):
        flag = "--json" if ask.as_json else "--raw"
        raise UsageError(f"{flag} needs --prompt", "give the text to answer: --prompt TEXT")
    if ask.is_raw and (ask.system or ask.thinking is not None):
        raise UsageError("--raw uses no chat template, so --system and --think mean nothing", "leave them out")


@contextmanager
def _opened(
    folder: Path, flags: EngineFlags, given: dict[str, float | int | None], *, is_embedded: bool
) -> Iterator[_Opened]:
    from streamoe_engine.band import Band

    from ..sampling import default_params, override
    from ..text import load_text

    params = override(default_params(folder), **given)
    text, tokenizer_bytes = load_text(folder)
    with Band.open(folder, band_options(flags, folder, tokenizer_bytes, is_embedded=is_embedded)) as band:
        yield _Opened(band, text, params)


def _session(opened: _Opened, ask: _Ask) -> ChatSession:
    from ..session import ChatSession

    return ChatSession(opened.band, opened.text, opened.params, system=ask.system, thinking=ask.thinking)


def _chat_at_terminal(
    folder: Path, flags: EngineFlags, given: dict[str, float | int | None], ask: _Ask, *, is_embedded: bool
) -> None:
    # Imported before the band opens: what they cost is then part of the plan.
    from ..terminal.chat import TerminalChat
    from ..terminal.reader import make_reader

    reader = make_reader()
    with _opened(folder, flags, given, is_embedded=is_embedded) as opened:
        TerminalChat(opened.band, _session(opened, ask), reader).run()


def _answer_once(opened: _Opened, ask: _Ask, prompt: str) -> Shown:
    from ..generation import Generator, Request
    from ..interrupt import stops_on_interrupt
    from ..report import answer_json, answer_line, promise
    from ..sampling import Sampler
    from ..terminal.answer import show_answer
    from ..terminal.style import dim

    plan, tokenizer = opened.band.plan, opened.text.tokenizer
    print(dim(promise(plan), sys.stderr), file=sys.stderr)
    start_s = time.perf_counter()
    with stops_on_interrupt() as stop:
        if ask.is_raw:
            tokens = tokenizer.encode(prompt, with_special_tokens=True)
            request = Request(tokens, opened.params.max_tokens, start_s=start_s)
            events = Generator(opened.band, tokenizer, Sampler(opened.params)).generate(request, stop)
        else:
            events = _session(opened, ask).answer(prompt, stop)
        shown = show_answer(events, None if ask.as_json else sys.stdout)
    if ask.as_json:
        print_json(answer_json(shown, plan))
    print(dim(answer_line(shown.finished), sys.stderr), file=sys.stderr)
    return shown
