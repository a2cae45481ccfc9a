"""The picture of what grows with what: a row of small panels for each part, a panel for each figure.

Sizes are steps of the same width, whatever lies between them; heights begin at zero, so that level is level.
What was not taken on a quiet machine is hollow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from bench.conditions import Conditions
from bench.growth_figures import PARTS, Point, figure
from bench.svg import FAINT, document, line, text

_WIDTH: Final = 1000
_MARGIN: Final = 28
_HEAD: Final = 70
_FOOT: Final = 56
_ROW: Final = 204
_PANEL: Final = 300
_PLOT_WIDTH: Final = 240
_PLOT_HEIGHT: Final = 84
_COLOUR: Final = "#c2410c"
_EMPTY: Final = "Nothing has been measured yet: python -m bench.growth draws this picture."


def draw(points: Sequence[Point], conditions: Conditions | None) -> str:
    """The whole SVG document; without points, one that says so."""
    parts = [part for part in PARTS if any(point.part == part for point in points)]
    height = _HEAD + max(1, len(parts)) * _ROW + _FOOT
    drawn = [text(_MARGIN, 36, "What grows with what", size=20, weight=600)]
    if not points:
        drawn.append(text(_MARGIN, _HEAD + 20, _EMPTY, size=14, colour=FAINT))
        return document(_WIDTH, height, drawn)
    said = "less is better · each panel from zero · the steps are sizes, not a scale"
    drawn.append(text(_MARGIN, 58, said, size=13, colour=FAINT))
    busy = conditions is not None and conditions.is_busy
    for number, part in enumerate(parts):
        mine = sorted((point for point in points if point.part == part), key=lambda point: point.size)
        drawn += _row(_HEAD + number * _ROW, PARTS[part], mine, busy=busy)
    notes = [] if conditions is None else [f"{conditions.machine}; {conditions.at[:10]}"]
    if busy or any(point.noise for point in points):
        notes.append("hollow: NOT QUOTABLE, the machine was not quiet")
    drawn += [
        text(_MARGIN, height - 34 + number * 18, note, size=11.5, colour=FAINT)
        for number, note in enumerate(notes)
    ]
    return document(_WIDTH, height, drawn)


def _row(top: float, title: str, points: Sequence[Point], *, busy: bool) -> list[str]:
    drawn = [text(_MARGIN, top + 22, title, size=15, weight=600)]
    for number, name in enumerate(points[0].figures):
        drawn += _panel(_MARGIN + number * (_PANEL + 20), top + 34, name, points, busy=busy)
    return drawn


def _panel(left: float, top: float, name: str, points: Sequence[Point], *, busy: bool) -> list[str]:
    floor = top + 44 + _PLOT_HEIGHT
    highest = max(point.figures[name] for point in points) or 1.0
    step = _PLOT_WIDTH / max(1, len(points) - 1)
    places = [
        (left + 20 + number * step, floor - point.figures[name] / highest * _PLOT_HEIGHT)
        for number, point in enumerate(points)
    ]
    drawn = [
        text(left, top + 10, name, size=12.5, colour=FAINT),
        line(left, floor, left + _PLOT_WIDTH + 40, floor, width=1),
        *(line(*here, *there, width=2, colour=_COLOUR) for here, there in pairwise(places)),
    ]
    for (x, y), point in zip(places, points, strict=True):
        fill = "#ffffff" if busy or point.noise else _COLOUR
        drawn += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{_COLOUR}" stroke-width="2"/>',
            text(x, y - 9, figure(point.figures[name]), size=12, anchor="middle"),
            text(x, floor + 16, f"{point.size:,}", size=11.5, anchor="middle", colour=FAINT),
        ]
    return drawn
