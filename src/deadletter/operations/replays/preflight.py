"""The look before a replay: what the broker says of where the letters would go.

The shape of the vhost comes from the management API. Where that does not answer, what AMQP tells has to do:
whether the queue is there, how many letters wait in it and how many consumers it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import read_topology
from deadletter.broker.queue_counts import counts_of
from deadletter.broker.session import Link, supervise
from deadletter.core.letter.header_values import shown
from deadletter.core.replaying.preflight import QueueFacts, WayFacts
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange, ToOrigin, ToQueue
from deadletter.core.topology.routing import Router
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import Queue, Topology
from deadletter.errors import ChannelClosed, ManagementRefused

_HOPS: Final = 20
"""So far the dead letters of a queue are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterKinds:
    """What is asked about: how many letters there are of each origin, and of each routing key."""

    origins: Mapping[str, int]
    keys: Mapping[str, int]
    """Of as many as were looked at; they matter where each letter goes by its own."""


class Looked(NamedTuple):
    ways: tuple[WayFacts, ...]
    unknown: str
    """Why the shape could not be read; empty: it could."""


async def look(
    addresses: Sequence[Address],
    api: str | None,
    target: ReplayTarget,
    letters: LetterKinds,
    *,
    looked_after: Callable[[str], bool],
) -> Looked:
    """Where letters of these kinds would go. `looked_after`: whether the service takes letters from there."""
    try:
        shape = await read_topology(addresses[0], api)
    except ManagementRefused as error:
        return Looked(await _by_amqp(addresses, target, letters), str(error))
    return Looked(tuple(ways_in(shape, target, letters, looked_after)), "")


def ways_in(
    shape: Topology, target: ReplayTarget, letters: LetterKinds, looked_after: Callable[[str], bool]
) -> Iterator[WayFacts]:
    """The same in a shape that was read. Pure."""
    router = Router(shape)

    def facts(name: str) -> QueueFacts:
        queue = shape.queues.get(name)
        return _facts(router, queue, looked_after) if queue else QueueFacts(name=name, there=False)

    for place, number, queue in _single(target, letters):
        yield WayFacts(letters=number, place=place, queues=(facts(queue),))
    if isinstance(target, ToExchange):
        keys = letters.keys if target.key is None else {target.key: sum(letters.origins.values())}
        for key, number in keys.items():
            reach = router.route(target.exchange, Keys(key))
            yield WayFacts(
                letters=number,
                place=_exchange(target.exchange, key),
                queues=tuple(facts(name) for name in sorted(reach.queues)),
                missing=reach.missing if reach.missing == target.exchange else None,
                complete=reach.complete,
                certain=reach.certain,
                alone=False,
                alternates=reach.alternates,
            )


def _single(target: ReplayTarget, letters: LetterKinds) -> Iterator[tuple[str, int, str]]:
    """The ways that lead to one queue alone."""
    match target:
        case ToOrigin():
            for origin, number in letters.origins.items():
                yield f"queue {shown(origin)}", number, origin
        case ToQueue(queue=queue):
            yield f"queue {shown(queue)}", sum(letters.origins.values()), queue
        case ToExchange():
            return
        case _:
            assert_never(target)


def _exchange(exchange: str, key: str) -> str:
    return f"exchange {shown(exchange)} by key {shown(key)}" if exchange else f"queue {shown(key)}"


def _facts(router: Router, queue: Queue, looked_after: Callable[[str], bool]) -> QueueFacts:
    state = queue.state
    return QueueFacts(
        name=queue.name,
        type=queue.type,
        ready=state.ready if state else 0,
        consumers=state.consumer_count or len(state.consumers) if state else 0,
        ttl_ms=queue.ttl_ms,
        expires_ms=queue.expires_ms,
        max_length=queue.max_length,
        max_length_bytes=queue.max_length_bytes,
        drops_head=queue.overflow == "drop-head",
        dead_letters_go=queue.dead_letter_exchange is not None,
        comes_back_by=tuple(sorted(_back(router, queue, looked_after))),
    )


def _back(router: Router, queue: Queue, looked_after: Callable[[str], bool]) -> set[str]:
    """Queues that the service looks after and that its dead letters come to, over others or at once."""
    found: set[str] = set()
    seen, edge = {queue.name}, [queue]
    for _ in range(_HOPS):
        further = {name for one in edge for name in router.dead_letter_queues(one)} - seen
        seen |= further
        taken = {name for name in further if looked_after(name)}
        found |= taken
        edge = [router.topology.queues[name] for name in sorted(further - taken)]
        if not edge:
            break
    return found


async def _by_amqp(
    addresses: Sequence[Address], target: ReplayTarget, letters: LetterKinds
) -> tuple[WayFacts, ...]:
    async def ask(link: Link) -> tuple[WayFacts, ...]:
        connection = await link.connection("consume")
        ways: list[WayFacts] = []
        for place, number, name in _single(target, letters):
            try:
                counts = await counts_of(connection, name)
            except ChannelClosed:  # it is there, and we may not know more
                queue = QueueFacts(name=name, known=False)
            else:
                queue = (
                    QueueFacts(name=name, there=False)
                    if counts is None
                    else QueueFacts(name=name, known=False, ready=counts.ready, consumers=counts.consumers)
                )
            ways.append(WayFacts(letters=number, place=place, queues=(queue,)))
        return tuple(ways)

    return await supervise(addresses, ask, name="dlq replay")
