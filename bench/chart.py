"""The picture: letters per second by mover, one panel for each broker and queue type, all on one scale.

Written by hand as SVG. Horizontal bars, so that names and figures are read without turning the head; ours in
colour, the shovel dark because it is what one compares with, the rest grey. What is not quotable is pale and
has a question mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.conditions import Conditions
from bench.figures import LIMIT, OURS, WHOLE, YARDSTICK, Row, fewer, grouped
from bench.svg import FAINT, document, line, text

_WIDTH: Final = 1000
_MARGIN: Final = 28
_GUTTER: Final = 36
_HEAD: Final = 78
_FOOT: Final = 80
_PANEL_HEAD: Final = 34
_STEP: Final = 34
_BAR: Final = 22
_NAMES: Final = 84
_FIGURES: Final = 218
"""Room to the right of the longest bar, for what is written there."""

_COLOURS: Final = {OURS: "#c2410c", WHOLE: "#ea8a55", YARDSTICK: "#334155"}
_PALE: Final = 0.35
_OTHER: Final = "#94a3b8"


def draw(table: Sequence[Row], conditions: Conditions) -> str:
    """The whole SVG document."""
    panels = list(grouped(table, lambda row: f"RabbitMQ {row.broker}, {row.queue_type} queues").items())
    columns = 1 if len(panels) == 1 else 2
    panel_width = (_WIDTH - 2 * _MARGIN - (columns - 1) * _GUTTER) / columns
    panel_height = _PANEL_HEAD + _STEP * max((len(rows) for _, rows in panels), default=0) + 24
    lines = -(-len(panels) // columns)
    height = _HEAD + lines * panel_height + _FOOT
    fastest = max((row.per_s_range[1] for row in table), default=1.0)
    scale = (panel_width - _NAMES - _FIGURES) / fastest
    parts = [
        text(_MARGIN, 36, "Letters moved per second, confirmed before acked", size=20, weight=600),
        text(
            _MARGIN,
            58,
            "more is better · × is the pace against RabbitMQ’s own shovel in the same round, "
            "% that of the limit (spliced) · µs is the client’s CPU per letter",
            size=13,
            colour=FAINT,
        ),
    ]
    for number, (title, rows) in enumerate(panels):
        left = _MARGIN + (number % columns) * (panel_width + _GUTTER)
        top = _HEAD + (number // columns) * panel_height
        parts += _panel(left, top, title, rows, scale)
    parts += _footnotes(table, conditions, height)
    return document(_WIDTH, height, parts)


def _panel(left: float, top: float, title: str, rows: Sequence[Row], scale: float) -> list[str]:
    axis = left + _NAMES
    parts = [text(left, top + 20, title, size=15, weight=600)]
    for number, row in enumerate(rows):
        y = top + _PANEL_HEAD + number * _STEP
        middle = y + _BAR / 2 + 5
        length = max(1.0, row.per_s * scale)
        colour = _COLOURS.get(row.mover, _OTHER)
        weight = 600 if row.mover in _COLOURS else 400
        low, high = (axis + pace * scale for pace in row.per_s_range)
        opacity = 1 if row.quotable else _PALE
        parts += [
            text(axis - 8, middle, row.mover, size=14, anchor="end", weight=weight),
            _rect(axis, y, length, colour, opacity),
            line(low - 1, y + _BAR / 2, high + 1, y + _BAR / 2, width=4, colour="#ffffff"),
            line(low, y + _BAR / 2, high, y + _BAR / 2, width=1.5),
            text(max(axis + length, high) + 8, middle, _figures(row), size=13, weight=weight),
        ]
    bottom = top + _PANEL_HEAD + len(rows) * _STEP - (_STEP - _BAR) + 4
    parts.append(line(axis, top + _PANEL_HEAD - 4, axis, bottom, width=1))
    return parts


def _figures(row: Row) -> str:
    said = [f"{row.per_s:,.0f}"]
    if row.to_shovel is not None and row.mover != YARDSTICK:
        said.append(f"{row.to_shovel.median:.2f}×")
    if row.to_limit is not None and row.mover != LIMIT:
        said.append(f"{row.to_limit.median:.0%}")
    if row.cpu_us is not None:
        said.append(f"{row.cpu_us:.0f} µs")
    return " · ".join(said) + ("" if row.quotable else " ?")


def _footnotes(table: Sequence[Row], conditions: Conditions, height: float) -> list[str]:
    most = max((row.count for row in table), default=0)
    slow = fewer(table)
    said = [
        f"{most:,} letters{slow and f' ({slow})'}; thin lines: slowest to fastest round; one scale for all",
        str(conditions),
        conditions.machine,
    ]
    if not all(row.quotable for row in table):
        said[0] += "; pale, with ?: NOT QUOTABLE"
    return [
        text(_MARGIN, height - 54 + number * 18, words, size=11.5, colour=FAINT)
        for number, words in enumerate(said)
    ]


def _rect(x: float, y: float, length: float, colour: str, opacity: float) -> str:
    where = f'x="{x:.1f}" y="{y}" width="{length:.1f}" height="{_BAR}"'
    return f'<rect {where} rx="2" fill="{colour}" fill-opacity="{opacity}"/>'
