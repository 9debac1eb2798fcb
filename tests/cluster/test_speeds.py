"""From what a canary measured to what predictions need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.cluster.predict import ModelShape, band_prediction, predict
from streamoe_coordinator.cluster.speeds import DEFAULT_HIT_POWER, DEFAULT_WAIT_S, speed_of
from streamoe_coordinator.cluster.verify import BandMeasure
from streamoe_engine.sizes import MIB
from streamoe_proto.messages import PlanRow
from tests.cluster.facts import node

SHAPE = ModelShape((10 * MIB,) * 8, (400 * MIB,) * 8, (12 * MIB,) * 8, 50 * MIB)
ROWS = {
    "runtime": 100,
    "resident weights": 40,
    "KV cache": 16,
    "recurrent state": 8,
    "scratch": 20,
    "landing slots": 16,
}


def measured(hot_mib: int = 300, **changes: float) -> BandMeasure:
    """Layers 0-3, four tokens."""
    plan = tuple(PlanRow(name, size * MIB, "") for name, size in {**ROWS, "hot tier": hot_mib}.items())
    cap_bytes = sum(row.num_bytes for row in plan)
    values = {"compute_s": 0.08, "wait_s": 0.04, "wire_s": 0.004, "read_bytes": 100 * MIB, "picks": 64, "hits": 32}
    values |= changes
    facts = node("a", 0, 3, 8, cap_bytes=cap_bytes, plan=plan)
    return BandMeasure(facts, 4, **values)  # type: ignore[arg-type]


def test_what_was_measured_is_predicted_again() -> None:
    measure = measured()
    speed = speed_of(SHAPE, measure)
    band = band_prediction(SHAPE, speed, 0, 3)
    assert band is not None
    assert band.hit_share == pytest.approx(measure.hits / measure.picks)
    assert band.compute_s == pytest.approx(measure.compute_s / 4)
    assert band.wait_s == pytest.approx(measure.wait_s / 4, rel=1e-3)
    assert band.read_bytes == pytest.approx(measure.read_bytes / 4, rel=1e-3)
    assert speed.hop_s == pytest.approx(0.001)
    assert speed.state_bytes == 6 * MIB
    assert speed.fixed_bytes == (100 + 20) * MIB


@given(
    st.integers(0, 2000),
    st.integers(0, 64),
    st.integers(0, 10**9),
    st.floats(0, 1),
)
def test_any_measurement_gives_figures_that_can_be_used(hot: int, hits: int, read_bytes: int, wait_s: float) -> None:
    speed = speed_of(SHAPE, measured(hot, hits=hits, read_bytes=read_bytes, wait_s=wait_s))
    assert 0 < speed.hit_power <= 1 and speed.reads_per_miss >= 1 and speed.wait_s >= 0
    assert predict(SHAPE, [speed])[0].num_nodes == 1


def test_what_was_not_measured_is_assumed() -> None:
    speed = speed_of(SHAPE, measured(hot_mib=4000, hits=64, read_bytes=0, wait_s=0.0))
    assert (speed.hit_power, speed.wait_s, speed.reads_per_miss) == (DEFAULT_HIT_POWER, DEFAULT_WAIT_S, 1.0)
