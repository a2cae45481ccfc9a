"""What a picture of a topology shows: nodes and arrows, before anybody thinks about where they stand.

Exchanges and queues are nodes. Bindings are solid arrows with their keys; dead-lettering is a dashed arrow
that says when; an alternate exchange is a dotted one. Dead letters that go by name through the default
exchange lead straight to the queue, because that is what happens. What is named and not there is a node too,
drawn as a hole: that is where letters vanish. Predeclared exchanges appear where something uses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from deadletter.core.text.durations import duration_text
from deadletter.core.topology.vhost import (
    DEFAULT_EXCHANGE,
    PREDECLARED,
    Binding,
    DestinationKind,
    Exchange,
    Queue,
    Topology,
)
from deadletter.errors import UsageError

NODES_MAX: Final = 300
"""More than this nobody can look at."""
_KEYS_SHOWN: Final = 3
_PREDECLARED: Final = frozenset(name for name, _ in PREDECLARED)


class DrawnShape(Enum):
    EXCHANGE = "exchange"
    QUEUE = "queue"
    HOLE = "hole"
    """Named, and not there: letters vanish in it."""
    GIVEN = "given"
    """Named by a plan that leaves it to the application to declare."""


class DrawnLine(Enum):
    BINDING = "binding"
    DEATH = "death"
    ALTERNATE = "alternate"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnNode:
    id: str
    """`exchange orders` or `queue orders`: unique, and what a person would call it."""
    shape: DrawnShape
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    source: str
    target: str
    line: DrawnLine
    label: str = ""
    waited: bool = False
    """Letters go here by waiting: a queue with a TTL. Such an arrow is mostly the way back of a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    nodes: tuple[DrawnNode, ...]
    arrows: tuple[Arrow, ...]


def graph(topology: Topology, *, around: Iterable[str] = (), planned: bool = False) -> Graph:
    """The picture's content. `around`: only what these queues are connected with, however far. `planned`:
    this is a plan and not a whole vhost, so what it names and does not declare is no hole."""
    arrows = _merged(_arrows(topology))
    nodes = {node.id: node for node in _nodes(topology, arrows, planned=planned)}
    wanted = tuple(around)
    if wanted:
        near = _near(wanted, topology, arrows)
        nodes = {name: node for name, node in nodes.items() if name in near}
        arrows = [arrow for arrow in arrows if arrow.source in near]
    if len(nodes) > NODES_MAX:
        raise UsageError(
            f"expected at most {NODES_MAX} exchanges and queues in one picture, got {len(nodes)}; draw "
            "a part of it: --queue NAME, more than once if you like"
        )
    return Graph(nodes=tuple(nodes.values()), arrows=tuple(arrows))


def _queue_id(name: str) -> str:
    return f"queue {name}"


def _exchange_id(name: str) -> str:
    return f"exchange {name}"


def _arrows(topology: Topology) -> Iterator[Arrow]:
    for binding in topology.bindings:
        if binding.source:
            named = _queue_id if binding.to is DestinationKind.QUEUE else _exchange_id
            yield Arrow(
                source=_exchange_id(binding.source),
                target=named(binding.destination),
                line=DrawnLine.BINDING,
                label=_binding_label(binding, topology.exchanges.get(binding.source)),
            )
    for queue in topology.queues.values():
        target = queue.dead_letter_exchange
        if target is None:
            continue
        key = queue.dead_letter_key
        when = "" if queue.ttl_ms is None else f"after {duration_text(queue.ttl_ms)}"
        if target == DEFAULT_EXCHANGE and key is not None:
            to, label = _queue_id(key), when
        else:
            to = _exchange_id(target)
            label = ", ".join(part for part in (when, f"as {key}" if key else "") if part)
        yield Arrow(
            source=_queue_id(queue.name), target=to, line=DrawnLine.DEATH, label=label, waited=bool(when)
        )
    for exchange in topology.exchanges.values():
        if exchange.alternate is not None:
            yield Arrow(
                source=_exchange_id(exchange.name),
                target=_exchange_id(exchange.alternate),
                line=DrawnLine.ALTERNATE,
                label="unroutable",
            )


def _binding_label(binding: Binding, exchange: Exchange | None) -> str:
    if exchange is not None and exchange.type == "headers":
        return ", ".join(f"{key}={value!s}" for key, value in binding.arguments.items())
    if exchange is not None and exchange.type == "fanout":
        return ""
    return binding.routing_key or '""'


def _merged(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Many bindings between the same two are one arrow with their keys."""
    labels: dict[Arrow, list[str]] = defaultdict(list)
    for arrow in arrows:
        labels[replace(arrow, label="")].append(arrow.label)
    return [replace(arrow, label=_listed(found)) for arrow, found in labels.items()]


def _listed(labels: list[str]) -> str:
    shown = [label for label in labels if label][:_KEYS_SHOWN]
    more = len(labels) - _KEYS_SHOWN
    return ", ".join(shown) + (f" and {more} more" if shown and more > 0 else "")


def _nodes(topology: Topology, arrows: Iterable[Arrow], *, planned: bool) -> Iterator[DrawnNode]:
    named = list(dict.fromkeys(name for arrow in arrows for name in (arrow.source, arrow.target)))
    used = set(named)
    for exchange in topology.exchanges.values():
        if exchange.name not in _PREDECLARED or _exchange_id(exchange.name) in used:
            yield DrawnNode(
                id=_exchange_id(exchange.name),
                shape=DrawnShape.EXCHANGE,
                title=exchange.name or "(default exchange)",
                lines=(exchange.type,),
            )
    for queue in topology.queues.values():
        yield DrawnNode(
            id=_queue_id(queue.name), shape=DrawnShape.QUEUE, title=queue.name, lines=tuple(_facts(queue))
        )
    there = {_exchange_id(name) for name in topology.exchanges} | {
        _queue_id(name) for name in topology.queues
    }
    for name in named:
        if name not in there:
            kind, _, title = name.partition(" ")
            shape = DrawnShape.GIVEN if planned else DrawnShape.HOLE
            said = f"{kind}, the application's" if planned else f"no such {kind} here"
            yield DrawnNode(id=name, shape=shape, title=title, lines=(said,))


def _facts(queue: Queue) -> Iterator[str]:
    first = [queue.type]
    if queue.ttl_ms is not None:
        first.append(f"TTL {duration_text(queue.ttl_ms)}")
    yield ", ".join(first)
    limits: Mapping[str, int | None] = {"max": queue.max_length, "max bytes": queue.max_length_bytes}
    said = [f"{name} {value:,}" for name, value in limits.items() if value is not None]
    if said:
        yield ", ".join([*said, queue.overflow])
    if queue.at_least_once:
        yield "dead letters at least once"
    if queue.state is not None and queue.state.messages:
        yield f"{queue.state.messages:,} letter{'' if queue.state.messages == 1 else 's'}"


def _near(wanted: tuple[str, ...], topology: Topology, arrows: Iterable[Arrow]) -> set[str]:
    """Everything that letters of these queues can come from or go to, and the two together."""
    unknown = [name for name in wanted if name not in topology.queues]
    if unknown:
        raise UsageError(f"expected queues of vhost {topology.vhost!r}, got {', '.join(map(repr, unknown))}")
    ahead: dict[str, list[str]] = defaultdict(list)
    behind: dict[str, list[str]] = defaultdict(list)
    for arrow in arrows:
        ahead[arrow.source].append(arrow.target)
        behind[arrow.target].append(arrow.source)
    start = [_queue_id(name) for name in wanted]
    return _reached(start, ahead) | _reached(start, behind)


def _reached(start: list[str], steps: Mapping[str, list[str]]) -> set[str]:
    seen, ahead = set(start), list(start)
    while ahead:
        for name in steps.get(ahead.pop(), ()):
            if name not in seen:
                seen.add(name)
                ahead.append(name)
    return seen
