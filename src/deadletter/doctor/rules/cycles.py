"""Letters that go round without anybody having rejected them.

RabbitMQ lets a letter go round as long as somebody rejects it on the way: that is how retry queues work. When
a letter comes to a queue it has died in before, and every death since was by time, length or delivery limit,
the broker takes it for an endless cycle and drops it, silently. A main queue that gets a delivery limit (from
4.0 on every quorum queue has one) turns a good retry loop into such a cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules import cures, path_words
from deadletter.doctor.rules.case import Case, rule


class _Step(NamedTuple):
    """One death on the way round."""

    queue: Queue
    exchange: str
    keys: Keys


@rule(
    "cycle-without-rejection",
    Harm.LOST,
    summary="letters can go round without a rejection, and the broker drops them",
    why="A letter that comes back to a queue it died in, without a rejection on the way, is dropped "
    "silently on every version. A retry loop is safe only while its main queue lets letters go by "
    "rejection alone: a TTL, a length or a delivery limit there makes it a trap, and from 4.0 on every "
    "quorum queue has a delivery limit.",
)
def cycle_without_rejection(case: Case) -> Iterator[Evidence]:
    """One finding per knot of queues: the shortest way round it."""
    graph = {
        queue.name: sorted(case.router.dead_letter_queues(queue))
        for queue, _ in path_words.dead_lettering(case)
        if path_words.deaths_by_itself(queue, case.version)
    }
    for knot in _knots(graph):
        yield _cycle(case, _shortest(graph, knot))


def _knots(graph: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    """The sets of queues that all lead to each other (Tarjan's way, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in order:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(graph[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, following = work[-1]
            for further in following:
                if further not in graph:
                    continue  # letters rest there
                if further not in order:
                    order[further] = low[further] = len(order)
                    stack.append(further)
                    on_stack.add(further)
                    work.append((further, iter(graph[further])))
                    break
                if further in on_stack:
                    low[name] = min(low[name], order[further])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    knot = set()
                    while name not in knot:
                        knot.add(stack.pop())
                    on_stack -= knot
                    if len(knot) > 1 or name in graph[name]:
                        yield frozenset(knot)


def _shortest(graph: Mapping[str, list[str]], knot: frozenset[str]) -> list[str]:
    """A shortest cycle through the first queue of a knot by name."""
    start = min(knot)
    came_from: dict[str, str] = {}
    pending = deque([start])
    while pending:
        name = pending.popleft()
        for further in graph[name]:
            if further == start:
                way = [name]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if further in knot and further not in came_from:
                came_from[further] = name
                pending.append(further)
    raise AssertionError(f"no way round from {start}: not a knot")


def _cycle(case: Case, names: list[str]) -> Evidence:
    steps = _walk(case, names)
    sure = steps is not None
    steps = steps if steps is not None else _unproven(case, names)
    path: list[str] = []
    for step in steps:
        reason = " or ".join(path_words.deaths_by_itself(step.queue, case.version))
        path += [
            path_words.queue_step(step.queue.name),
            reason,
            path_words.exchange_step(step.exchange),
            path_words.key_step(step.keys),
        ]
    first = steps[0].queue.name
    return Evidence(
        severity=Severity.ERROR if sure else Severity.WARNING,
        subject=first,
        path=(*path, path_words.queue_step(first), "dropped: a cycle without a rejection"),
        why=f"A letter {'goes' if sure else 'may go'} from {' to '.join([*names, first])} without being "
        "rejected anywhere. The broker takes that for an endless cycle and drops it, silently, when it "
        f"comes to {first} again.",
        fix=_cut(case, [step.queue for step in steps]),
    )


def _walk(case: Case, names: list[str]) -> list[_Step] | None:
    """The way round with the keys a letter really has; None where no single letter is known to go it."""
    first = case.topology.queues[names[0]]
    for entering in case.router.arriving_keys(first.name):
        keys = entering
        steps: list[_Step] = []
        for name, following in zip(names, [*names[1:], names[0]], strict=True):
            queue = case.topology.queues[name]
            exchange = queue.dead_letter_exchange
            if exchange is None:
                break
            keys = keys if queue.dead_letter_key is None else Keys(queue.dead_letter_key)
            reach = case.router.route(exchange, keys)
            if following not in reach.queues or not reach.certain:
                break
            steps.append(_Step(queue, exchange, keys))
        if len(steps) == len(names):
            return steps
    return None


def _unproven(case: Case, names: list[str]) -> list[_Step]:
    steps = []
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        queue = case.topology.queues[name]
        reach = next(reach for reach in case.router.fates(queue) if following in reach.queues)
        steps.append(_Step(queue, reach.exchange, reach.keys))
    return steps


def _cut(case: Case, queues: list[Queue]) -> str:
    """Where to open the cycle: at a delivery limit if there is one, for a delay needs its TTL."""
    for queue in queues:
        if queue.delivery_limit(case.version) is not None and path_words.deaths_by_itself(
            queue, case.version
        ) == (path_words.DELIVERY_LIMIT,):
            return (
                f"let {queue.name} dead-letter to a queue that keeps what it gets, and publish retries to "
                f"the delay; or let its consumer count, and take the limit off: {cures.no_limit(case, queue)}"
            )
    limits = ("message-ttl", "max-length", "max-length-bytes", "delivery-limit")
    queue = queues[0]
    return cures.take_off(case, queue, *(name for name in limits if name in queue.effective))
