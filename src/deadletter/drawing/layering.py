"""Where the nodes of a picture stand: from left to right in layers, in an order with few crossings.

The usual four steps, each the simplest thing that looks good on a few dozen nodes. Arrows that would close a
circle are turned round for the layering (retry loops are circles; that is what they are for). Every node
stands one layer right of the last node that leads to it. An arrow over several layers gets a place in each of
them, so that it passes between nodes and not through them. And within a layer nodes go to the mean place of
their neighbours, back and forth a few times.

Nothing here is random: the same graph gives the same picture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from deadletter.core.letter.names import is_ours
from deadletter.drawing.graph import Arrow, Graph

_SWEEPS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWay:
    """An arrow and what it passes: places in the layers between, left to right. Backward: none, it goes
    round the outside."""

    arrow: Arrow
    through: tuple[str, ...] = ()
    backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    layers: tuple[tuple[str, ...], ...]
    """Ids of nodes, and of places that arrows pass; top to bottom."""
    ways: tuple[DrawnWay, ...]


def layered(picture: Graph) -> Layers:
    ids = [node.id for node in picture.nodes]
    arrows = [arrow for arrow in picture.arrows if arrow.source in set(ids) and arrow.target in set(ids)]
    backward = _closing(ids, arrows)
    forward = [arrow for number, arrow in enumerate(arrows) if number not in backward]
    layer = _layer_of(ids, forward)
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in ids:
        columns[layer[name]].append(name)
    ways: list[DrawnWay] = []
    links: list[tuple[str, str]] = []
    for number, arrow in enumerate(arrows):
        if number in backward:
            ways.append(DrawnWay(arrow=arrow, backward=True))
            continue
        through = tuple(
            f"pass {number} {place}" for place in range(layer[arrow.source] + 1, layer[arrow.target])
        )
        for place, name in enumerate(through, layer[arrow.source] + 1):
            columns[place].append(name)
        ways.append(DrawnWay(arrow=arrow, through=through))
        stops = (arrow.source, *through, arrow.target)
        links += pairwise(stops)
    return Layers(layers=tuple(tuple(column) for column in _ordered(columns, links)), ways=tuple(ways))


def _closing(ids: Sequence[str], arrows: Sequence[Arrow]) -> set[int]:
    """The numbers of the arrows that close a circle, when one walks from where letters come in."""
    leaving: dict[str, list[int]] = defaultdict(list)
    arriving: set[str] = set()
    for number, arrow in enumerate(arrows):
        leaving[arrow.source].append(number)
        if not arrow.waited:
            arriving.add(arrow.target)
    closing: set[int] = set()
    done: set[str] = set()

    # From where publishers come in: what nothing leads to but a retry, exchanges first and ours last.
    def lateness(name: str) -> tuple[bool, bool, bool]:
        kind, _, title = name.partition(" ")
        return name in arriving, kind != "exchange", is_ours(title)

    for start in sorted(ids, key=lateness):
        if start in done:
            continue
        path, stack = {start}, [(start, iter(leaving[start]))]
        done.add(start)
        while stack:
            name, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                stack.pop()
                path.discard(name)
                continue
            target = arrows[step].target
            if target in path:
                closing.add(step)
            elif target not in done:
                done.add(target)
                path.add(target)
                stack.append((target, iter(leaving[target])))
    return closing


def _layer_of(ids: Iterable[str], forward: Sequence[Arrow]) -> dict[str, int]:
    layer = dict.fromkeys(ids, 0)
    changed = True
    while changed:  # ends: there is no circle, so no layer passes the number of nodes
        changed = False
        for arrow in forward:
            if layer[arrow.target] <= layer[arrow.source]:
                layer[arrow.target] = layer[arrow.source] + 1
                changed = True
    # What nothing leads to stands right before what it leads to, not far away at the left.
    arrived = {arrow.target for arrow in forward}
    for name in layer:
        after = [layer[arrow.target] for arrow in forward if arrow.source == name]
        if name not in arrived and after:
            layer[name] = min(after) - 1
    return layer


def _ordered(columns: list[list[str]], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    left: dict[str, list[str]] = defaultdict(list)
    right: dict[str, list[str]] = defaultdict(list)
    for source, target in links:
        right[source].append(target)
        left[target].append(source)
    best, fewest = [list(column) for column in columns], _crossings(columns, links)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        numbers = range(1, len(columns)) if forwards else range(len(columns) - 2, -1, -1)
        for number in numbers:
            beside = columns[number - 1 if forwards else number + 1]
            _sort(columns[number], beside, left if forwards else right)
        crossings = _crossings(columns, links)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _sort(column: list[str], beside: Sequence[str], neighbours: Mapping[str, list[str]]) -> None:
    place = {name: number for number, name in enumerate(beside)}
    own = {name: float(number) for number, name in enumerate(column)}

    def mean(name: str) -> float:
        found = [place[other] for other in neighbours.get(name, ()) if other in place]
        return sum(found) / len(found) if found else own[name]

    column.sort(key=lambda name: (mean(name), own[name]))


def _crossings(columns: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    where = {name: (x, y) for x, column in enumerate(columns) for y, name in enumerate(column)}
    between: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for source, target in links:
        (x, from_y), (_, to_y) = where[source], where[target]
        between[x].append((from_y, to_y))
    return sum(
        (one[0] - other[0]) * (one[1] - other[1]) < 0
        for pairs in between.values()
        for number, one in enumerate(pairs)
        for other in pairs[number + 1 :]
    )
