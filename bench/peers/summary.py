"""Rows for people: a line a run, and medians, spread and ratios a cap.

Owns the wording. All arithmetic is on rows; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.peers.ceilings import Ceilings
from bench.peers.rows import Row

from streamoe_engine.sizes import format_size

# 0 to 6 % on a machine left alone, the most where the kernel's threads serve a loop device.
BUSY_SHARE = 0.15
_STREAMED_BYTES = 10**5  # a token: less is a page here and there of a model in memory


def run_line(row: Row) -> str:
    """One finished run."""
    head = f"{cap_text(row.cap_bytes):>9}  {row.mode:<10} {row.engine:<9} #{row.repeat}"
    peak = "" if row.peak_bytes is None else f", peak {format_size(row.peak_bytes)}"
    if row.tok_per_s is None:
        return f"{head}  {row.status} before a figure{peak}: {row.note}"
    parts = [f"{row.tok_per_s:.3g} tok/s"]
    if row.median_ms is not None:
        parts += [f"median {row.median_ms:.1f} ms", f"second half {row.late_tok_per_s:.3g} tok/s"]
    parts += [f"{(row.read_bytes_per_token or 0) / 1e6:.1f} MB/token", f"{row.major_faults_per_token:.0f} faults/token"]
    parts += [f"others {row.others_share or 0:.0%}"]
    return f"{head}  {', '.join(parts)}{peak}" + ("" if row.status == "ok" else f", {row.status}: {row.note}")


def cap_text(cap_bytes: int | None) -> str:
    """A cap as read by people."""
    return "no limit" if cap_bytes is None else format_size(cap_bytes)


def summary(rows: Sequence[Row], ceilings: Ceilings) -> str:
    """Medians, spread and ratios of everything that was run."""
    lines = [str(ceilings)]
    for mode in dict.fromkeys(row.mode for row in rows):
        for cap in dict.fromkeys(row.cap_bytes for row in rows):
            group = [row for row in rows if (row.mode, row.cap_bytes) == (mode, cap)]
            if group:
                lines += ["", f"{mode}, {cap_text(cap)}", *_group_lines(group, ceilings)]
    return "\n".join([*lines, *_agreement_lines(rows), *_busy_lines(rows)])


def _group_lines(group: Sequence[Row], ceilings: Ceilings) -> list[str]:
    by_engine = {name: [row for row in group if row.engine == name] for name in sorted({row.engine for row in group})}
    lines = [f"  {name:<9} {_engine_line(rows, ceilings)}" for name, rows in by_engine.items()]
    ours = by_engine.get("streamoe", [])
    for name, theirs in by_engine.items():
        if name != "streamoe" and _speeds(ours) and _speeds(theirs):
            lines.append(f"  {'ratio':<9} {_ratio_line(ours, theirs, name)}")
    return lines


def _engine_line(rows: Sequence[Row], ceilings: Ceilings) -> str:
    speeds, peak = _speeds(rows), max((row.peak_bytes or 0 for row in rows), default=0)
    unfinished = [row.status for row in rows if row.status != "ok"]
    if not speeds:
        return f"no figure: {', '.join(unfinished)}; peak {format_size(peak)}"
    parts = [f"{median(speeds):.3g} tok/s ({min(speeds):.3g} to {max(speeds):.3g}, {len(speeds)} runs)"]
    if medians := [row.median_ms for row in rows if row.median_ms is not None]:
        parts.append(f"median token {median(medians):.1f} ms")
    read_bytes = _read_bytes(rows)
    floor = f"{read_bytes / ceilings.disk_gb_per_s / 1e6:.1f} ms of disk" if ceilings.disk_gb_per_s else "disk unknown"
    parts.append(f"{read_bytes / 1e6:.1f} MB/token ({floor})")
    parts.append(f"peak {format_size(peak)}")
    if unfinished:
        parts.append(f"{len(unfinished)} not finished: {', '.join(unfinished)}")
    return ", ".join(parts)


def _ratio_line(ours: Sequence[Row], theirs: Sequence[Row], name: str) -> str:
    speed = {row.repeat: row.tok_per_s for row in theirs if row.tok_per_s}
    pairs = [row.tok_per_s / speed[row.repeat] for row in ours if row.tok_per_s and row.repeat in speed]
    text = f"streamoe / {name}: {median(_speeds(ours)) / median(_speeds(theirs)):.2f} times the speed"
    if len(pairs) > 1:
        text += f" (pair by pair {min(pairs):.2f} to {max(pairs):.2f})"
    if _read_bytes(theirs) < _STREAMED_BYTES:
        return text
    return f"{text}, {_read_bytes(ours) / _read_bytes(theirs):.2f} times the bytes"


def _agreement_lines(rows: Sequence[Row]) -> list[str]:
    # Each engine's likeliest tokens, over all its runs, and against streamoe's.
    picks = {row.engine: row.argmax.split() for row in rows if row.argmax}
    lines = [""] if picks else []
    for name, first in picks.items():
        runs = [row.argmax.split() for row in rows if row.engine == name and row.argmax]
        same = all(run[: len(first)] == first[: len(run)] for run in runs)
        lines.append(f"{name}: the likeliest tokens are {'the same' if same else 'NOT the same'} in {len(runs)} runs")
    ours = picks.get("streamoe")
    for name, theirs in picks.items():
        if ours and name != "streamoe":
            pairs = list(zip(ours, theirs, strict=False))
            equal = sum(a == b for a, b in pairs)
            lines.append(f"streamoe and {name} agree on {equal} of {len(pairs)} (chance, if their weights differ)")
    return lines


def _busy_lines(rows: Sequence[Row]) -> list[str]:
    shares = [row.others_share for row in rows if row.others_share is not None]
    busy = [share for share in shares if share > BUSY_SHARE]
    if not busy:
        return []
    return [f"in {len(busy)} of {len(shares)} runs others had up to {max(busy):.0%} of the cores: measure again alone"]


def _speeds(rows: Sequence[Row]) -> list[float]:
    return [row.tok_per_s for row in rows if row.tok_per_s is not None]


def _read_bytes(rows: Sequence[Row]) -> float:
    return median(row.read_bytes_per_token for row in rows if row.read_bytes_per_token is not None)
