"""Tables: a plan, several plans beside each other, counts by layer, checks.

Owns rows and columns; the figures are others'. The only module that draws with rich, which costs 3 MiB: a process
that answers --prompt never imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streamoe_engine.errors import PlanDoesNotFit
from streamoe_engine.plan import Plan
from streamoe_engine.sizes import MIB, format_size, size_argument
from streamoe_engine.telemetry import Snapshot

from ..report import promise

_PLAIN_COLUMNS = 110  # where stdout is no terminal, so that no row breaks


def print_plan(plan: Plan, stream: TextIO, smallest_bytes: int | None = None) -> None:
    """One row an item, their sum, and the promise."""
    table = _table(("item", "size", "share", "why"), num_figures=2)
    for item in plan.items:
        table.add_row(item.name, format_size(item.num_bytes), f"{item.num_bytes / plan.budget_bytes:.1%}", item.why)
    total = sum(item.num_bytes for item in plan.items)
    table.add_section()
    table.add_row("sum", format_size(total), f"{total / plan.budget_bytes:.1%}", f"{total} B, the cap to the byte")
    lines = [promise(plan)]
    if smallest_bytes is not None:
        size = size_argument(smallest_bytes)
        lines.append(f"smallest cap that fits: {format_size(smallest_bytes)}, as in --budget {size}")
    _print(stream, table, *lines)


def print_plans(plans: Sequence[Plan | PlanDoesNotFit], stream: TextIO) -> None:
    """A column a cap; one that does not fit says what is short."""
    caps = [plan.cap_bytes if isinstance(plan, PlanDoesNotFit) else plan.budget_bytes for plan in plans]
    table = _table(("item", *map(format_size, caps)), num_figures=len(caps))
    names = dict.fromkeys(item.name for plan in plans if isinstance(plan, Plan) for item in plan.items)
    for name in names:
        table.add_row(name, *(format_size(p.item_bytes(name)) if isinstance(p, Plan) else "" for p in plans))
    table.add_section()
    table.add_row("slots", *(str(p.slots) if isinstance(p, Plan) else "" for p in plans))
    table.add_row("of all experts", *(f"{p.hot_share:.1%}" if isinstance(p, Plan) else "" for p in plans))
    short = (f"short by {format_size(p.short_bytes)}" if isinstance(p, PlanDoesNotFit) else "yes" for p in plans)
    table.add_row("fits", *short)
    _print(stream, table)


def print_counts(counts: Snapshot, stream: TextIO) -> None:
    """A row a layer: where its experts came from."""
    table = _table(("layer", "picks", "hit", "guess", "miss", "wasted", "read", "wait"), num_figures=7)
    for layer in counts.layers:
        picks = max(layer.picks, 1)
        shares = (f"{count / picks:.0%}" for count in (layer.hits, layer.guess_hits, layer.misses))
        read = f"{layer.read_bytes / MIB:.1f} MiB"
        table.add_row(str(layer.layer), str(layer.picks), *shares, str(layer.wasted), read, f"{layer.wait_s:.2f} s")
    _print(
        stream,
        table,
        f"{counts.tokens_run} tokens run, {format_size(counts.read_bytes)} read, hit {counts.hit_rate:.0%}",
    )


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Plain text rows."""
    _print(stream, rows_table(columns, rows))


def rows_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Plain text rows, to be drawn by rich."""
    table = _table(tuple(columns), num_figures=0)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _table(columns: Sequence[str], *, num_figures: int) -> Table:
    # The first column names, the next num_figures are figures, the rest is text.
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if 1 <= number <= num_figures else "left", no_wrap=number <= num_figures)
    return table


def _print(stream: TextIO, table: Table, *lines: str) -> None:
    console = Console(file=stream, width=None if stream.isatty() else _PLAIN_COLUMNS)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, markup=False)
