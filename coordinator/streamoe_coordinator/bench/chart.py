"""A sweep as a picture: speed and bytes read against the cap, one SVG for light and dark pages.

Owns the drawing, with the standard library alone. Refuses to know where the points come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _LEFT, _RIGHT = 720, 64, 24
_TOP, _HEIGHT, _GAP, _BOTTOM = 48, 170, 56, 44
# No CSS variables: viewers other than browsers do not know them, and then draw the light scheme.
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; } .title { font-size: 15px; font-weight: 600; }
  .grid { stroke: #d1d9e0; } .line { stroke: #0969da; stroke-width: 2; fill: none; }
  .spread { stroke: #0969da; stroke-width: 6; opacity: .3; } .dot { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .grid { stroke: #3d444d; } .line, .spread { stroke: #58a6ff; } .dot { fill: #58a6ff; }
  }
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a cap, and the range it spread over where that is known."""

    cap_gib: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the charts above each other. points: at least one, by rising cap."""

    label: str
    points: Sequence[Point]


def draw(title: str, panels: Sequence[Panel]) -> str:
    """The SVG's text: panels below each other over one axis of caps."""
    caps = [point.cap_gib for panel in panels for point in panel.points]
    ticks_x = ticks(min(caps), max(caps))
    height = _TOP + len(panels) * (_HEIGHT + _GAP) - _GAP + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _text(_LEFT, 22, title, "start", "title"),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, ticks_x, _TOP + number * (_HEIGHT + _GAP))
    foot = height - _BOTTOM
    parts += [_text(_x(cap, ticks_x), foot + 18, f"{cap:g}", "middle") for cap in ticks_x]
    parts += [_text(_WIDTH - _RIGHT, foot + 36, "cap, GiB", "end"), "</svg>", ""]
    return "\n".join(parts)


def ticks(low: float, high: float) -> list[float]:
    """Two to seven round numbers, the first not above low and the last not below high; 0 <= low <= high."""
    spread = high - low if high - low > high / 1000 else high or 1.0
    step: float = 10.0 ** math.floor(math.log10(spread))
    step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if spread / (step * part) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return [float(f"{number * step:.6g}") for number in range(first, last + 1)]


def _panel(panel: Panel, ticks_x: Sequence[float], top: int) -> list[str]:
    ticks_y = ticks(0, max(max(point.value, point.high or 0) for point in panel.points))

    def y(value: float) -> float:
        return top + _HEIGHT * (1 - value / ticks_y[-1])

    parts = [_text(_LEFT, top - 8, panel.label, "start")]
    for tick in ticks_y:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(_text(_LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    places = [(_x(point.cap_gib, ticks_x), point) for point in panel.points]
    parts.append(
        f'<polyline class="line" points="{" ".join(f"{x:.1f},{y(point.value):.1f}" for x, point in places)}"/>'
    )
    for x, point in places:
        if point.low is not None and point.high is not None:
            low, high = y(point.low), y(point.high)
            parts.append(f'<line class="spread" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y(point.value):.1f}" r="4"/>')
    return parts


def _x(cap_gib: float, ticks_x: Sequence[float]) -> float:
    share = (cap_gib - ticks_x[0]) / (ticks_x[-1] - ticks_x[0])
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    of_class = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_class}>{escape(text)}</text>'
