"""`streamoe tier-sim`: a recorded trace through every policy of the hot tier, and through Belady's optimum."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from streamoe_engine.errors import UsageError

from .. import options
from ..edge import SCHEMA, print_json, reported

if TYPE_CHECKING:
    from streamoe_engine.tier_sim import Replayed
    from streamoe_engine.trace import Trace

BELADY = "belady"
# In these words the figures are printed, and named in JSON.
_COLUMNS = ("slots", "policy", "width", "hit", "read a token", "wasted of it", "to Belady")


def tier_sim(
    trace: options.TraceFile,
    *,
    slots: options.Slots,
    widths: options.Widths = "0,2",
    guess: options.TraceGuess = "recorded",
    as_json: options.AsJson = False,
) -> None:
    """Replay a trace of routing through the hot tier's policies: hits, records read, and how near they come to the
    least that was possible (Belady's optimum)."""
    with reported(as_json):
        from streamoe_engine.tier_sim import POLICIES, GuessSource, belady, replay
        from streamoe_engine.trace import read_trace

        if guess not in get_args(GuessSource):
            raise UsageError(f"--guess {guess} is not known", f"use one of {', '.join(get_args(GuessSource))}")
        all_slots, all_widths = _numbers("--slots", slots, 1), _numbers("--widths", widths, 0)
        recorded = read_trace(trace)
        rows = []
        for num_slots in all_slots:
            best = belady(recorded, num_slots)
            rows.append(_row(recorded, num_slots, BELADY, 0, best, best))
            for policy in POLICIES:
                for width in all_widths:
                    replayed = replay(recorded, policy, num_slots, width, guess)  # type: ignore[arg-type]
                    rows.append(_row(recorded, num_slots, policy, width, replayed, best))
        if as_json:
            facts = {"num_experts": recorded.num_experts, "top_k": recorded.top_k, "layers": list(recorded.layers)}
            print_json({"schema": SCHEMA, **facts, "guess": guess, "rows": rows})
        else:
            _print(rows)


def _row(trace: Trace, slots: int, policy: str, width: int, replayed: Replayed, best: Replayed) -> dict[str, Any]:
    return {
        "slots": slots,
        "policy": policy,
        "guess_width": width,
        **asdict(replayed),
        "reads": replayed.reads,
        "hit_rate": replayed.hit_rate,
        "decode_reads_per_token": replayed.decode_reads / max(trace.num_decode_tokens, 1),
        "reads_to_belady": replayed.reads / best.reads,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from ..terminal.tables import print_rows

    printed = [
        (
            str(row["slots"]),
            row["policy"],
            str(row["guess_width"]),
            f"{row['hit_rate']:.1%}",
            f"{row['decode_reads_per_token']:.2f}",
            f"{row['wasted'] / row['reads']:.1%}",
            f"{row['reads_to_belady']:.3f}",
        )
        for row in rows
    ]
    print_rows(_COLUMNS, printed, sys.stdout)


def _numbers(flag: str, text: str, least: int) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= least for part in parts):
        raise UsageError(
            f"{flag} {text} is no list of numbers from {least}", f"give numbers with commas: {flag} 64,128"
        )
    return [int(part) for part in parts]
