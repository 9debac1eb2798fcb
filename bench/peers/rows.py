"""One run, one row: what the child printed and what the kernel counted, as figures and as a line of CSV.

Owns the columns. Refuses to know how a run is started.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal

from tests.cgroup import CgroupRun

Status = Literal["ok", "killed", "failed", "timeout"]


@dataclass(frozen=True, slots=True)
class Row:
    """One run of one engine; None where it did not get that far.

    late_tok_per_s: of the second half of the decoded tokens, when caches have warmed. others_share: the part of all
    cores' time that others had meanwhile. peak_bytes: the kernel's count for the group, page cache included; anonymous
    and cache peaks are the highest of samples. token_ms, argmax: of each decoded token, separated by spaces.
    """

    engine: str
    version: str
    mode: str
    cap_bytes: int | None
    repeat: int
    status: Status
    tokens: int | None = None
    tok_per_s: float | None = None
    late_tok_per_s: float | None = None
    median_ms: float | None = None
    read_bytes_per_token: float | None = None
    major_faults_per_token: float | None = None
    others_share: float | None = None
    open_s: float | None = None
    prompt_s: float | None = None
    prompt_read_bytes: int | None = None
    peak_bytes: int | None = None
    anonymous_peak_bytes: int | None = None
    cache_peak_bytes: int | None = None
    read_ahead_kb: int | None = None
    note: str = ""
    token_ms: str = ""
    argmax: str = ""


def make_row(key: dict[str, Any], run: CgroupRun) -> Row:
    """key: the columns known before the run: engine, mode, cap_bytes, repeat, read_ahead_kb."""
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    named = {event["event"]: event for event in events}
    opened, prompt = named.get("opened", {}), named.get("prompt", {})
    told = run.stderr.strip().splitlines()
    return Row(
        **key,
        **_timed(named.get("decode" if key["mode"] == "decode" else "prompt"), events),
        version=opened.get("engine", ""),
        status="ok" if run.returncode == 0 else "killed" if run.oom_killed or run.returncode == -9 else "failed",
        open_s=opened.get("s"),
        prompt_s=prompt.get("s"),
        prompt_read_bytes=prompt.get("read_bytes"),
        peak_bytes=run.peak_bytes,
        anonymous_peak_bytes=run.anonymous_peak_bytes,
        cache_peak_bytes=run.cache_peak_bytes,
        note=opened.get("note", "") if run.returncode == 0 else " ".join(told[-1:]),
    )


def _timed(summed: dict[str, Any] | None, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    # What the mode is about: the decoded tokens, or the prompt.
    if summed is None:
        return {}
    num_tokens, tokens = summed["tokens"], [event for event in events if event["event"] == "token"]
    seconds = [token["s"] for token in tokens]
    late = seconds[len(seconds) // 2 :]
    return {
        "tokens": num_tokens,
        "tok_per_s": num_tokens / summed["s"],
        "late_tok_per_s": len(late) / sum(late) if late else None,
        "median_ms": median(seconds) * 1000 if seconds else None,
        "read_bytes_per_token": summed["read_bytes"] / num_tokens,
        "major_faults_per_token": summed["major_faults"] / num_tokens,
        "others_share": summed["others_share"],
        "token_ms": " ".join(f"{token_s * 1000:.1f}" for token_s in seconds),
        "argmax": " ".join(str(token["argmax"]) for token in tokens),
    }


class ResultsFile:
    """A CSV of rows below lines of "# name: text"; every row is on disk when add() returns. One owner closes it."""

    def __init__(self, path: Path, facts: dict[str, str]) -> None:
        """Raises FileExistsError: results are never written over."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("x", newline="", encoding="utf-8")
        self._file.writelines(f"# {name}: {text}\n" for name, text in facts.items())
        self._writer = csv.DictWriter(self._file, [field.name for field in fields(Row)], lineterminator="\n")
        self._writer.writeheader()
        self._file.flush()

    def add(self, row: Row) -> None:
        """Append a row."""
        self._writer.writerow({name: _cell(value) for name, value in asdict(row).items()})
        self._file.flush()

    def remark(self, text: str) -> None:
        """Append a line that is no row."""
        self._file.write(f"# {text}\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
