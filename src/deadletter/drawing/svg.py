"""A topology as one SVG picture: nothing outside it is loaded, and it is readable on light and on dark.

Letters go from left to right. Exchanges are round, queues are boxes; a solid arrow is a binding with its
keys, a dashed one is where dead letters go and after how long. What leads back runs below everything, so that
a retry loop is seen as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from deadletter.core.text.safe_text import markup
from deadletter.drawing.graph import Arrow, DrawnLine, DrawnNode, DrawnShape, Graph
from deadletter.drawing.layering import Layers, layered

_TITLE_PX: Final = 7.9
"""What a character of a title is wide, about; of a small line and a label, below."""
_SMALL_PX: Final = 6.5
_TITLE_MAX_CHARS: Final = 42
_LABEL_MAX_CHARS: Final = 34
_GAP_PX: Final = 64
_BETWEEN_PX: Final = 26
_PASS_PX: Final = 20
_MARGIN_PX: Final = 28
_LANE_PX: Final = 26
_CURVE_PX: Final = 10
_LEGEND_PX: Final = 34
_STYLE: Final = """
    :root { color-scheme: light dark }
    .paper { fill: #ffffff } .title { fill: #16202e } .small { fill: #5b6675 }
    .exchange { fill: #e9effd; stroke: #4a6fd0 } .queue { fill: #f6f7f9; stroke: #8a94a3 }
    .hole { fill: #fdeeee; stroke: #c0392b } .given { fill: #ffffff; stroke: #8a94a3 }
    .hole, .given { stroke-dasharray: 4 3 }
    .line { fill: none; stroke-width: 1.5 } .binding { stroke: #56657a } .death { stroke: #b4552d }
    .alternate { stroke: #7a56b0 } .death { stroke-dasharray: 6 4 } .alternate { stroke-dasharray: 2 3 }
    .tip-binding { fill: #56657a } .tip-death { fill: #b4552d } .tip-alternate { fill: #7a56b0 }
    .label { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round }
    .label-binding { fill: #3c4858 } .label-death { fill: #9a4522 } .label-alternate { fill: #68489a }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #14181f } .title { fill: #e8edf4 } .small { fill: #9aa6b5 }
      .exchange { fill: #1d2a4a; stroke: #6f93f0 } .queue { fill: #1f252e; stroke: #6e7a8a }
      .hole { fill: #3a1b1b; stroke: #e0705f } .given { fill: #14181f; stroke: #6e7a8a }
      .binding { stroke: #93a1b3 } .death { stroke: #e08a5f } .alternate { stroke: #b396e0 }
      .tip-binding { fill: #93a1b3 } .tip-death { fill: #e08a5f } .tip-alternate { fill: #b396e0 }
      .label { stroke: #14181f }
      .label-binding { fill: #b9c4d2 } .label-death { fill: #eda27d } .label-alternate { fill: #c6b0ea }
    }
"""
NO_LINKS: Final[Mapping[str, str]] = {}
_FONT: Final = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A place in the picture; one that an arrow only passes has no width."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def svg(picture: Graph, *, title: str, within: bool = False, links: Mapping[str, str] = NO_LINKS) -> str:
    """The picture as text. `title` is what it is a picture of; screen readers say it. `within`: as a part of
    a page, which brings the colours: it has classes then, and neither style nor paper of its own. `links`:
    where a node leads to, by its id."""
    layers = layered(picture)
    boxes, size = _places(picture, layers)
    inner = [_node(node, boxes[node.id], links.get(node.id)) for node in picture.nodes]
    lines, labels, bottom, right = _ways(layers, boxes, size)
    width = max(right + _MARGIN_PX, 560)
    height = bottom + _LEGEND_PX
    size_px = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    own = 'class="topology"' if within else f'role="img" font-family="{_FONT}"'
    style = [] if within else [f"<style>{_STYLE}</style>"]
    paper = [] if within else [f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>']
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size_px} {own}>',
            f"<title>{markup(title)}</title>",
            *style,
            *_tips(),
            *paper,
            *lines,
            *inner,
            *labels,
            _legend(picture, height),
            "</svg>",
            "",
        ]
    )


# -- places -----------------------------------------------------------------------------------------------
def _places(picture: Graph, layers: Layers) -> tuple[dict[str, Box], tuple[float, float]]:
    """Where everything stands, and how wide and high that is together."""
    nodes = {node.id: node for node in picture.nodes}
    column_of = {name: number for number, column in enumerate(layers.layers) for name in column}
    gaps = _gaps(layers, column_of)
    heights = [_column_height(column, nodes) for column in layers.layers]
    tallest = max(heights, default=0)
    boxes: dict[str, Box] = {}
    x = _MARGIN_PX + gaps.get(-1, 0)
    for number, column in enumerate(layers.layers):
        width = max((_width(nodes[name]) for name in column if name in nodes), default=0.0)
        y = _MARGIN_PX + (tallest - heights[number]) / 2
        for name in column:
            high = _height(nodes[name]) if name in nodes else _PASS_PX
            boxes[name] = Box(x=x, y=y, width=width, height=high)
            y += high + _BETWEEN_PX
        x += width + gaps.get(number, _GAP_PX)
    last = gaps.get(len(layers.layers) - 1, 0.0)
    right = max((box.right for box in boxes.values()), default=_MARGIN_PX) + last
    return boxes, (right, _MARGIN_PX + tallest)


def _gaps(layers: Layers, column_of: Mapping[str, int]) -> dict[int, float]:
    """How much room the arrows right of each column need: for their labels, and for those that turn back."""
    gaps: dict[int, float] = dict.fromkeys(range(len(layers.layers) - 1), _GAP_PX)
    for way in layers.ways:
        start = column_of[way.arrow.source]
        if way.backward:
            for place in (start, column_of[way.arrow.target] - 1):
                gaps[place] = gaps.get(place, 0) + _CURVE_PX * 2
        else:
            first = gaps.get(start, _GAP_PX)
            gaps[start] = max(first, len(_short(way.arrow.label, _LABEL_MAX_CHARS)) * _SMALL_PX + 48)
    return gaps


def _column_height(column: tuple[str, ...], nodes: Mapping[str, DrawnNode]) -> float:
    highs = [_height(nodes[name]) if name in nodes else _PASS_PX for name in column]
    return sum(highs) + _BETWEEN_PX * max(len(highs) - 1, 0)


def _width(node: DrawnNode) -> float:
    title = len(_short(node.title, _TITLE_MAX_CHARS)) * _TITLE_PX
    return max(title, *(len(line) * _SMALL_PX for line in node.lines), 84) + 32


def _height(node: DrawnNode) -> float:
    return 34 + 16 * len(node.lines)


# -- arrows -----------------------------------------------------------------------------------------------
def _ways(
    layers: Layers, boxes: Mapping[str, Box], size: tuple[float, float]
) -> tuple[list[str], list[str], float, float]:
    """Lines and labels, and how far down and right the picture reaches with them."""
    leave, arrive = _ports(layers, boxes)
    right, bottom = size
    lines: list[str] = []
    labels: list[str] = []
    lane = bottom + _LANE_PX
    turns: dict[float, int] = defaultdict(int)
    fans = _fans(layers)
    for number, way in enumerate(layers.ways):
        arrow = way.arrow
        source, target = boxes[arrow.source], boxes[arrow.target]
        start, end = (source.right, leave[number]), (target.x, arrive[number])
        if way.backward:
            out, back = source.right + 14, target.x - 16
            out += _CURVE_PX * turns[source.right]
            back -= _CURVE_PX * turns[target.x]
            turns[source.right] += 1
            turns[target.x] += 1
            lines.append(_line(arrow, _round(start, out, lane, back, end)))
            labels.append(_label(arrow, (out + back) / 2, lane))
            lane += _LANE_PX
        else:
            stops = [start]
            for name in way.through:
                box = boxes[name]
                stops += [(box.x, box.middle), (box.right, box.middle)]
            stops.append(end)
            lines.append(_line(arrow, _curve(stops)))
            (x1, y1), (x2, y2) = stops[0], stops[1]
            labels.append(_label(arrow, *_on_curve(x1, y1, x2, y2, fans[number])))
    turned = any(way.backward for way in layers.ways)
    return lines, labels, (lane if turned else bottom + _LANE_PX), right


def _fans(layers: Layers) -> list[float]:
    """How far along its first stretch an arrow has its label: towards the side where arrows are apart."""
    leaving: dict[str, int] = defaultdict(int)
    arriving: dict[str, int] = defaultdict(int)
    for way in layers.ways:
        leaving[way.arrow.source] += 1
        arriving[way.arrow.target] += 1
    return [
        0.5
        if leaving[way.arrow.source] == arriving[way.arrow.target] or way.through
        else 0.62
        if leaving[way.arrow.source] > arriving[way.arrow.target]
        else 0.38
        for way in layers.ways
    ]


def _ports(layers: Layers, boxes: Mapping[str, Box]) -> tuple[dict[int, float], dict[int, float]]:
    """At which height each arrow leaves and arrives: side by side, in the order of where they go."""
    leaving: dict[str, list[tuple[float, int]]] = defaultdict(list)
    arriving: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, way in enumerate(layers.ways):
        first = way.through[0] if way.through else way.arrow.target
        last = way.through[-1] if way.through else way.arrow.source
        below = 1e9 if way.backward else 0.0  # what goes round below leaves and arrives lowest
        leaving[way.arrow.source].append((boxes[first].middle + below, number))
        arriving[way.arrow.target].append((boxes[last].middle + below, number))
    return _spread(leaving, boxes), _spread(arriving, boxes)


def _spread(ends: Mapping[str, list[tuple[float, int]]], boxes: Mapping[str, Box]) -> dict[int, float]:
    heights: dict[int, float] = {}
    for name, found in ends.items():
        box = boxes[name]
        step = min(16.0, (box.height - 16) / len(found))
        top = box.middle - step * (len(found) - 1) / 2
        for place, (_, number) in enumerate(sorted(found)):
            heights[number] = top + step * place
    return heights


_Point = tuple[float, float]


def _curve(stops: list[_Point]) -> str:
    parts = [f"M{stops[0][0]:.1f},{stops[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(stops):
        half = (x2 - x1) / 2
        parts.append(f"C{x1 + half:.1f},{y1:.1f} {x2 - half:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")
    return " ".join(parts)


def _round(start: _Point, out: float, lane: float, back: float, end: _Point) -> str:
    """Out to the right, down, along the lane to the left, up, and in from the left."""
    (x1, y1), (x2, y2) = start, end
    bend = 9.0
    return (
        f"M{x1:.1f},{y1:.1f} H{out - bend:.1f} Q{out:.1f},{y1:.1f} {out:.1f},{y1 + bend:.1f} "
        f"V{lane - bend:.1f} Q{out:.1f},{lane:.1f} {out - bend:.1f},{lane:.1f} "
        f"H{back + bend:.1f} Q{back:.1f},{lane:.1f} {back:.1f},{lane - bend:.1f} "
        f"V{y2 + bend:.1f} Q{back:.1f},{y2:.1f} {back + bend:.1f},{y2:.1f} H{x2:.1f}"
    )


def _on_curve(x1: float, y1: float, x2: float, y2: float, along: float) -> _Point:
    """The point of the curve above at this share of the way."""
    rest = 1 - along
    rise = 3 * rest * along**2 + along**3
    middle = (x1 + x2) / 2
    x = rest**3 * x1 + 3 * rest**2 * along * middle + 3 * rest * along**2 * middle + along**3 * x2
    return x, y1 + (y2 - y1) * rise


# -- text -------------------------------------------------------------------------------------------------
def _node(node: DrawnNode, box: Box, link: str | None) -> str:
    radius = box.height / 2 if node.shape is DrawnShape.EXCHANGE else 4.0
    middle = box.x + box.width / 2
    title = (
        f'<text class="title" x="{middle:.1f}" y="{box.y + 22:.1f}" font-size="13.5" font-weight="600" '
        f'text-anchor="middle">{markup(_short(node.title, _TITLE_MAX_CHARS))}</text>'
    )
    rows = [
        f'<text class="small" x="{middle:.1f}" y="{box.y + 39 + 16 * number:.1f}" font-size="11.5" '
        f'text-anchor="middle">{markup(line)}</text>'
        for number, line in enumerate(node.lines)
    ]
    drawn = (
        f"<g><title>{markup(node.id)}</title>"
        f'<rect class="{node.shape.value}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.1f}" stroke-width="1.5"/>{title}{"".join(rows)}</g>'
    )
    return drawn if link is None else f'<a href="{markup(link)}">{drawn}</a>'


def _line(arrow: Arrow, path: str) -> str:
    kind = arrow.line.value
    return f'<path class="line {kind}" d="{path}" marker-end="url(#tip-{kind})"/>'


def _label(arrow: Arrow, x: float, y: float) -> str:
    if not arrow.label:
        return ""
    return (
        f'<text class="label label-{arrow.line.value}" x="{x:.1f}" y="{y + 4:.1f}" font-size="11.5" '
        f'text-anchor="middle">{markup(_short(arrow.label, _LABEL_MAX_CHARS))}'
        f"<title>{markup(arrow.label)}</title></text>"
    )


def _tips() -> Iterator[str]:
    yield "<defs>"
    for line in DrawnLine:
        yield (
            f'<marker id="tip-{line.value}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto">'
            f'<path class="tip-{line.value}" d="M0,0.8 L10,5 L0,9.2 z"/></marker>'
        )
    yield "</defs>"


def _legend(picture: Graph, height: float) -> str:
    y = height - 14
    pieces = []
    used = {arrow.line for arrow in picture.arrows}
    x = float(_MARGIN_PX)
    for line, words in (
        (DrawnLine.BINDING, "binding"),
        (DrawnLine.DEATH, "dead letters"),
        (DrawnLine.ALTERNATE, "alternate"),
    ):
        if line not in used:
            continue
        pieces.append(
            f'<path class="line {line.value}" d="M{x:.1f},{y - 4:.1f} H{x + 34:.1f}" '
            f'marker-end="url(#tip-{line.value})"/>'
            f'<text class="small" x="{x + 42:.1f}" y="{y:.1f}" font-size="11.5">{words}</text>'
        )
        x += 42 + len(words) * _SMALL_PX + 28
    return "".join(pieces)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"
