"""The chart is well-formed XML whatever the figures are, and its marks lie inside it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamoe_coordinator.bench.chart import Panel, Point, draw, ticks

SVG = "{http://www.w3.org/2000/svg}"
CAPS = st.floats(0.01, 1000)
VALUES = st.just(0.0) | st.floats(1e-6, 1e6)


@given(
    title=st.text(st.characters(categories=("L", "N", "P", "S"))),
    points=st.lists(st.tuples(CAPS, VALUES, VALUES), min_size=1, max_size=9),
)
def test_a_chart_is_well_formed_and_keeps_inside_its_frame(
    title: str, points: list[tuple[float, float, float]]
) -> None:
    speeds = [Point(cap, value, value, max(value, other)) for cap, value, other in sorted(points)]
    reads = [Point(cap, other) for cap, _, other in sorted(points)]
    root = ElementTree.fromstring(draw(title, [Panel("speed & more", speeds), Panel("reads", reads)]))
    assert root.tag == SVG + "svg"
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    dots = root.findall(SVG + "circle")
    assert len(dots) == 2 * len(points)
    assert all(0 <= float(dot.attrib["cx"]) <= width and 0 <= float(dot.attrib["cy"]) <= height for dot in dots)
    assert [text.text for text in root.findall(SVG + "text") if text.text == "speed & more"]


def test_a_chart_is_drawn_in_both_schemes() -> None:
    svg = draw("sweep", [Panel("tok/s", [Point(1, 2), Point(2, 3)])])
    assert "prefers-color-scheme: dark" in svg
    assert "background" not in svg, "the page's own shows through"


def test_faster_is_higher_and_a_larger_cap_is_further_right() -> None:
    root = ElementTree.fromstring(draw("sweep", [Panel("tok/s", [Point(1, 2), Point(2, 3)])]))
    first, second = root.findall(SVG + "circle")
    assert float(first.attrib["cx"]) < float(second.attrib["cx"])
    assert float(first.attrib["cy"]) > float(second.attrib["cy"])


@given(low=VALUES, spread=VALUES)
def test_ticks_enclose_their_range(low: float, spread: float) -> None:
    high = low + spread
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 8
    slack = 1e-5 * high  # six digits are shown
    assert marks[0] <= low + slack and marks[-1] >= high - slack
    assert marks == sorted(set(marks))


@pytest.mark.parametrize(("low", "high", "marks"), [(0, 9, [0, 2, 4, 6, 8, 10]), (3, 6, [3, 4, 5, 6]), (4, 4, [4, 5])])
def test_ticks_are_round(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high)[: len(marks)] == marks
