"""What is shown of an answer comes from one set of values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamoe_coordinator.events import Finished, Shown, Timings, Usage
from streamoe_coordinator.report import answer_json, answer_line, exact_size
from streamoe_engine.plan import Plan, PlanItem
from streamoe_engine.sizes import GIB, MIB
from streamoe_engine.telemetry import LayerCounts, Snapshot

LAYERS = (
    LayerCounts(0, picks=1000, hits=500, guess_hits=300, misses=200, wasted=7, read_bytes=300 * 308 * MIB),
    LayerCounts(1, picks=1000, hits=540, guess_hits=260, misses=200, wasted=3, read_bytes=18 * 308 * MIB),
)
COUNTS = Snapshot(4 * GIB, 3 * GIB, int(3.74 * GIB), 320, LAYERS)
FINISHED = Finished(
    "stop", tuple(range(309)), Usage(12, 309, 0), Timings(1.9, 1.8, 308 / 7.4, 308), counts=COUNTS, decode_counts=COUNTS
)
PLAN = Plan(
    4 * GIB, (PlanItem("all", 4 * GIB, "why"),), 8, 4, 4096, 2, 0, 1, 4096, "f32", 32, 6, 8, 64, "float32", "mlx"
)


def test_the_line_after_an_answer() -> None:
    assert answer_line(FINISHED) == (
        "309 tok · 7.4 tok/s · TTFT 1.9 s · hit 52% · read 318 MiB/tok · peak 3.74/4.00 GiB"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reason": "length"}, "GiB · ended at the token limit"),
        ({"reason": "cancelled"}, "GiB · stopped"),
        ({"decode_counts": replace(COUNTS, budget_bytes=256 * MIB, peak_bytes=200 * MIB)}, "peak 200/256 MiB"),
    ],
)
def test_the_lines_end(changes: dict[str, Any], expected: str) -> None:
    assert answer_line(replace(FINISHED, **changes)).endswith(expected)


def test_what_was_not_measured_is_left_out() -> None:
    stopped = replace(FINISHED, reason="cancelled", usage=Usage(12, 0, 0), timings=Timings(None, 0.5, 0.0, 0))
    assert answer_line(stopped) == "0 tok · peak 3.74/4.00 GiB · stopped"


def test_json_tells_the_same_figures() -> None:
    value = answer_json(Shown("text", "thought", FINISHED), PLAN)
    assert value["usage"] == {"prompt_tokens": 12, "completion_tokens": 309, "cached_tokens": 0}
    assert value["timings"]["tokens_per_s"] == pytest.approx(7.4)
    assert (value["hit_rate"], value["peak_bytes"]) == (0.52, COUNTS.peak_bytes)
    assert value["layers"][0] == {
        "layer": 0,
        "hit": 500,
        "guess": 300,
        "miss": 200,
        "wasted": 7,
        "bytes_read": LAYERS[0].read_bytes,
        "wait_s": 0.0,
    }
    assert value["plan"]["budget_bytes"] == 4 * GIB


def test_a_size_is_echoed_to_the_byte() -> None:
    assert exact_size(4 * GIB) == "4.00 GiB (4294967296 B)"
