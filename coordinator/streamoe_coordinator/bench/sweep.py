"""The same run at several caps, and the table and chart of its rows.

Owns the rows, the CSV file and what is drawn. Refuses to know how a row is measured: a process each does that.
"""

from __future__ import annotations

import csv
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from streamoe_engine.errors import UsageError
from streamoe_engine.sizes import GIB, format_size

from .chart import Panel, Point, draw
from .child import Refused, run_child

Row = dict[str, Any]


def sweep(budgets: Sequence[int], arguments: Sequence[str], tell: Callable[[str], None]) -> Iterator[Row | Refused]:
    """Measure each cap, in bytes, in a process of its own; tell is given a line as each begins.

    arguments: what `streamoe bench run` is given besides. Raises MeasurementFailed.
    """
    for number, budget in enumerate(budgets, 1):
        tell(f"{number} of {len(budgets)}: --budget {budget}B")
        result = run_child([*arguments, "--budget", f"{budget}B"])
        if isinstance(result, Refused):
            yield result
            continue
        where = {"streamoe": version("streamoe"), "machine": platform.platform()}
        yield {"date": datetime.now(UTC).isoformat(timespec="seconds"), **where, **result}


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line a row; its columns are those of the first. Raises UsageError when it cannot be written."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "choose another file for --csv") from error


def write_svg(svg: str, path: Path) -> None:
    """Raises UsageError when it cannot be written."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "choose another file for --svg") from error


def sweep_chart(title: str, rows: Sequence[Row]) -> str:
    """An SVG: tokens a second with their spread, and MiB read a token, against the cap. rows: at least one."""
    caps = [row["budget_bytes"] / GIB for row in rows]
    speeds = [
        Point(cap, row["tokens_per_s"], row["tokens_per_s_p10"], row["tokens_per_s_p90"])
        for cap, row in zip(caps, rows, strict=True)
    ]
    reads = [Point(cap, row["read_mib_per_token"]) for cap, row in zip(caps, rows, strict=True)]
    return draw(title, [Panel("tokens a second, median and the middle 80 %", speeds), Panel("MiB read a token", reads)])


SHOWN = ("cap", "peak", "slots", "tok/s", "10 % to 90 %", "first token", "hit", "MiB/tok", "waiting")


def shown_row(row: Row) -> tuple[str, ...]:
    """The cells under SHOWN."""
    return (
        format_size(row["budget_bytes"]),
        format_size(row["peak_bytes"]),
        str(row["slots"]),
        f"{row['tokens_per_s']:.2f}",
        f"{row['tokens_per_s_p10']:.2f} to {row['tokens_per_s_p90']:.2f}",
        f"{row['ttft_s']:.2f} s",
        f"{row['hit_rate']:.0%}",
        f"{row['read_mib_per_token']:.1f}",
        f"{row['wait_share']:.0%}",
    )
