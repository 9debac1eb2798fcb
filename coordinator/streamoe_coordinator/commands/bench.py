"""`streamoe bench`: measure one configuration, sweep over caps, find the fastest settings, record routing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamoe_engine.errors import PlanDoesNotFit, UsageError
from streamoe_engine.sizes import format_size, parse_size
from streamoe_node import shared_options
from streamoe_node.models import resolve_model
from streamoe_node.opening import EngineFlags, band_options

from .. import options
from ..edge import EXIT_CODES, SCHEMA, print_json, reported

if TYPE_CHECKING:
    from streamoe_engine.band import Band
    from streamoe_engine.trace import TraceRecorder

    from ..bench.sweep import Row
    from ..bench.tune import Settings
    from ..text import Text

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure speed, sweep over caps, tune, and record what a model routes to.",
    epilog=EXIT_CODES,
)
# Wide enough for any width that tier-sim may be asked about; it only makes the recording run read more.
TRACE_GUESS_WIDTH = 16


@bench.command(epilog=EXIT_CODES)
def run(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    tokens: options.Tokens = 64,
    prompt_tokens: options.PromptTokens = 64,
    forced: options.Forced = False,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    policy: shared_options.Policy = None,
    reader_threads: shared_options.ReaderThreads = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    head: options.Head = None,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure one configuration: speed, time to the first token, where the time goes, what is read."""
    with reported(as_json):
        from ..bench.measure import forced_workload, measure, measured_json, measured_lines
        from ..bench.words import text_workload

        flags = EngineFlags(
            budget, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend, head
        )
        folder = resolve_model(model, may_convert=yes)
        with _opened(folder, flags, is_embedded=model is None, needs_text=not forced) as (band, text):
            if text is None:
                workload = forced_workload(prompt_tokens, tokens, band.manifest.vocab_size)
            else:
                workload = text_workload(folder, text.tokenizer, prompt_tokens, tokens)
            measured = measure(band, workload)
        if as_json:
            print_json(measured_json(measured))
        else:
            print("\n".join(measured_lines(measured)))


@bench.command(epilog=EXIT_CODES)
def sweep(
    model: options.Model = None,
    *,
    budgets: options.SweepBudgets,
    tokens: options.Tokens = 64,
    prompt_tokens: options.PromptTokens = 64,
    forced: options.Forced = False,
    ctx: options.Ctx = None,
    kv: shared_options.Kv = None,
    chunk: shared_options.Chunk = None,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    policy: shared_options.Policy = None,
    reader_threads: shared_options.ReaderThreads = None,
    threads: shared_options.Threads = None,
    backend: options.Backend = None,
    head: options.Head = None,
    yes: options.Yes = False,
    csv: options.Csv = None,
    svg: options.Svg = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure several caps, each in a process of its own; exit code 3 when none of them fits."""
    with reported(as_json):
        from ..bench.sweep import sweep as measure_caps

        caps = sorted(parse_size(text) for text in budgets.split(","))
        flags = EngineFlags(
            None, ctx, kv, None, chunk, guess, guess_width, policy, reader_threads, threads, backend, head
        )
        resolve_model(model, may_convert=yes)
        arguments = _arguments(model, flags, tokens, prompt_tokens, is_forced=forced, may_convert=yes)
        results = list(measure_caps(caps, arguments, _tell))
        rows = [result for result in results if isinstance(result, dict)]
        refused = [result for result in results if not isinstance(result, dict)]
        _show_sweep(model, rows, csv, svg, as_json=as_json)
        if as_json:
            print_json({"schema": SCHEMA, "rows": rows, "do_not_fit_bytes": [entry.budget_bytes for entry in refused]})
        for entry in refused:
            cap, needed = format_size(entry.budget_bytes), format_size(entry.needed_bytes)
            print(f"{cap} does not fit: the smallest cap is {needed}", file=sys.stderr)
        if not rows:
            raise typer.Exit(PlanDoesNotFit.exit_code)


@bench.command(epilog=EXIT_CODES)
def tune(
    model: options.Model = None,
    *,
    budget: shared_options.Budget = None,
    tokens: options.Tokens = 32,
    prompt_tokens: options.PromptTokens = 16,
    forced: options.Forced = False,
    rounds: options.Rounds = 3,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Find the fastest guess, width and reader threads here, and keep them as defaults. No token changes by them."""
    with reported(as_json):
        from streamoe_node.config import write_config

        from ..bench.child import Refused, run_child
        from ..bench.tune import trial_json
        from ..bench.tune import tune as find_fastest

        resolve_model(model, may_convert=yes)
        arguments = _arguments(model, EngineFlags(budget), tokens, prompt_tokens, is_forced=forced, may_convert=yes)

        def speed(settings: Settings) -> float:
            result = run_child([*arguments, *settings.arguments()])
            if isinstance(result, Refused):
                raise UsageError(
                    f"--budget {budget} is too small to try a guess width of {settings.guess_width}",
                    f"give {format_size(result.needed_bytes)} or more",
                )
            return float(result["tokens_per_s"])

        trials = find_fastest(speed, rounds, _tell)
        file = write_config(_kept(trials[0].settings))
        if as_json:
            print_json({"schema": SCHEMA, "trials": [trial_json(trial) for trial in trials], "config": str(file)})
            return
        for trial in trials:
            print(f"{trial.median_tokens_per_s:8.2f} tok/s  {' '.join(trial.settings.arguments())}")
        print(f"the first is now the default: {file}")


@bench.command(epilog=EXIT_CODES)
def trace(
    model: options.Model = None,
    *,
    out: options.Out,
    prompts: options.Prompts = None,
    prompt: options.OnePrompt = None,
    max_tokens: options.AnswerTokens = 150,
    budget: shared_options.Budget = None,
    ctx: options.Ctx = None,
    chunk: shared_options.Chunk = None,
    guess: shared_options.Guess = None,
    guess_width: shared_options.GuessWidth = None,
    yes: options.Yes = False,
) -> None:
    """Answer prompts with the likeliest tokens and write down which experts were picked and guessed, for tier-sim."""
    with reported():
        from streamoe_engine.trace import TraceRecorder, write_trace

        from ..bench.trace import read_prompts, record
        from ..sampling import default_params, override

        if prompts is not None and prompt is None:
            texts = read_prompts(prompts)
        elif prompt and prompts is None:
            texts = [prompt]
        else:
            raise UsageError("a trace needs prompts", "give either --prompt TEXT or --prompts FILE")
        width = TRACE_GUESS_WIDTH if guess_width is None else guess_width
        flags = EngineFlags(budget, ctx, None, None, chunk, guess, width)
        folder, recorder = resolve_model(model, may_convert=yes), TraceRecorder()
        params = override(default_params(folder), temperature=0, max_tokens=max_tokens)
        with _opened(folder, flags, is_embedded=model is None, recorder=recorder) as (band, text):
            assert text is not None, "asked for"
            recorded = record(band, recorder, text, params, texts, _tell)
        write_trace(recorded, out)
        print(f"{out}: {recorded.num_decode_tokens} tokens one by one, {len(recorded.steps)} steps")


@contextmanager
def _opened(
    folder: Path,
    flags: EngineFlags,
    *,
    is_embedded: bool,
    needs_text: bool = True,
    recorder: TraceRecorder | None = None,
) -> Iterator[tuple[Band, Text | None]]:
    from streamoe_engine.band import Band

    from ..text import load_text

    text, tokenizer_bytes = load_text(folder) if needs_text else (None, 0)
    band_as_asked = band_options(flags, folder, tokenizer_bytes, is_embedded=is_embedded)
    with Band.open(folder, replace(band_as_asked, recorder=recorder)) as band:
        yield band, text


def _arguments(
    model: Path | None, flags: EngineFlags, tokens: int, prompt_tokens: int, *, is_forced: bool, may_convert: bool
) -> list[str]:
    """The same configuration for `streamoe bench run` in a child."""
    given = {**asdict(flags), "tokens": tokens, "prompt_tokens": prompt_tokens}
    valued = [
        part
        for name, value in given.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    switches = [flag for flag, is_on in (("--forced", is_forced), ("--yes", may_convert)) if is_on]
    return [*([] if model is None else [str(model)]), *valued, *switches]


def _show_sweep(model: Path | None, rows: list[Row], csv: Path | None, svg: Path | None, *, as_json: bool) -> None:
    from ..bench.sweep import SHOWN, shown_row, sweep_chart, write_csv, write_svg

    if not rows:
        return
    if csv is not None:
        write_csv(rows, csv)
    if svg is not None:
        name = "the embedded model" if model is None else model.name
        write_svg(sweep_chart(f"{name}: speed and reads under a cap", rows), svg)
    if not as_json:
        from ..terminal.tables import print_rows

        print_rows(SHOWN, [shown_row(row) for row in rows], sys.stdout)


def _kept(settings: Settings) -> dict[str, Any]:
    # Without guesses the width means nothing: the default stays, for whoever asks for guesses with a flag.
    from streamoe_engine.plan_types import DEFAULT_GUESS_WIDTH

    return {**asdict(settings), "guess_width": settings.guess_width or DEFAULT_GUESS_WIDTH}


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
