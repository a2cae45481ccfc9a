"""How full the queues around a handler are, and letting out at once what waits in one of its delays.

Both work on connections of their own, whether the consumer runs or not. A delay that no rule has and a
handler asked for is seen where the management API can be asked; AMQP has no list of queues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, assert_never

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import read_topology
from deadletter.broker.queue_counts import counts_of, counts_of_existing
from deadletter.broker.session import Link
from deadletter.consumer.backoffs import milliseconds
from deadletter.consumer.queues.declared_layouts import planned_for
from deadletter.consumer.queues.layout_routes import asked_delay_of, delays_of, parked_in
from deadletter.consumer.queues.queue_options import QueueOptions
from deadletter.core.layouts.naming import DUE
from deadletter.core.letter import names
from deadletter.core.letter.envelope import Deaths
from deadletter.core.letter.letter import Letter
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.core.topology.vhost import Topology
from deadletter.errors import CannotConnect, ManagementRefused, UsageError
from deadletter.move.courier import Bounds, Courier, MoveTally
from deadletter.move.verdict import Leave, Send, Verdict

_ORIGIN: Final = frozenset({names.ORIGIN_QUEUE.encode()})


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStatistics:
    """One delay. In the layout `return` it is shared with other queues, and so is its depth."""

    queue: str
    delay_ms: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """One queue of the consumer. `depth` counts what is ready, not what consumers hold."""

    queue: str
    layout: str
    depth: int
    consumers: int
    levels: tuple[LevelStatistics, ...] = ()
    parked_in: str | None = None
    """Where its parked letters are; None where the application's own set-up decides that."""
    parked: int | None = None


async def _seen(link: Link, api: str | None) -> Topology | None:
    """What is in the vhost; None where the management API cannot be asked."""
    try:
        return await read_topology(link.address, api)
    except ManagementRefused:
        return None


async def _way_of(link: Link, options: QueueOptions, live: Topology | None) -> ConsumerLayout:
    """The layout a queue is in; what `auto` means depends on the broker and the queue."""
    if options.layout != "auto":
        return ConsumerLayout(options.layout)
    version = (await link.connection("declare")).server_version if live is None else live.version
    return ConsumerLayout(planned_for(options, live, version).layout)


def _delays(way: ConsumerLayout, options: QueueOptions, live: Topology | None) -> dict[str, int]:
    """Those of the queue's rules, and those that a handler once asked for, as far as they can be seen."""
    queue, rules = options.queue, options.rules
    there = () if live is None else live.queues
    asked = {name: ms for name in there if (ms := asked_delay_of(way, queue, name)) is not None}
    known = delays_of(way, queue, rules.schedule, rules.schedules)
    return {**known, **dict(sorted(asked.items(), key=itemgetter(1)))}


async def _queue_statistics(
    link: Link, way: ConsumerLayout, queue: str, delays: Mapping[str, int]
) -> QueueStatistics:
    """As it is now. QueueMissing when the queue itself is not there; what else is missing counts as empty."""
    connection = await link.connection("declare")
    counted = await counts_of_existing(connection, queue)
    levels = []
    for name, delay_ms in delays.items():
        found = await counts_of(connection, name)
        levels.append(LevelStatistics(queue=name, delay_ms=delay_ms, depth=found.ready if found else 0))
    aside = parked_in(way, queue)
    parked = None if aside is None else await counts_of(connection, aside)
    return QueueStatistics(
        queue=queue,
        layout=way.value,
        depth=counted.ready,
        consumers=counted.consumers,
        levels=tuple(levels),
        parked_in=aside,
        parked=None if aside is None else parked.ready if parked else 0,
    )


async def drain_level(addresses: Sequence[Address], way: ConsumerLayout, queue: str, level: str) -> MoveTally:
    """Move what waits in one delay of this queue on, now, with the safe move.

    `ladder` and `loop`: back into the queue. `return`: its letters, and no others, to `deadletter.due`, from
    where they go home as if their time were over.
    """
    match way:
        case ConsumerLayout.RETURN:
            go = Send(routing_key=DUE)

            def decide(letter: Letter) -> Verdict:
                mine = letter.select(_ORIGIN).get(names.ORIGIN_QUEUE) == queue
                return go if mine else Leave()
        case ConsumerLayout.LADDER | ConsumerLayout.LOOP:
            # The broker's deaths are a loop's attempts.
            home = Send(
                routing_key=queue, deaths=Deaths.KEEP if way is ConsumerLayout.LOOP else Deaths.SET_ASIDE
            )

            def decide(letter: Letter) -> Verdict:  # noqa: ARG001 -- all of them, whatever they are
                return home
        case ConsumerLayout.NATIVE | ConsumerLayout.EXTERNAL:
            raise UsageError(
                f"queue {queue}: expected a layout whose delays are queues (return, ladder, loop), got {way}"
            )
        case _:
            assert_never(way)
    return await Courier(addresses, source=level, decide=decide, bounds=Bounds()).run()


async def all_statistics(
    addresses: Sequence[Address], api: str | None, name: str, queues: Mapping[str, QueueOptions]
) -> dict[str, QueueStatistics]:
    """Of each queue."""
    found: dict[str, QueueStatistics] = {}
    async with _visit(addresses, name) as link:
        live = await _seen(link, api)
        for queue, options in queues.items():
            way = await _way_of(link, options, live)
            found[queue] = await _queue_statistics(link, way, queue, _delays(way, options, live))
    return found


async def drain(
    addresses: Sequence[Address], api: str | None, name: str, options: QueueOptions, delays: Sequence[float]
) -> dict[str, MoveTally]:
    """Let out now what waits in these delays, in seconds; in all of them where none is named."""
    queue = options.queue
    async with _visit(addresses, name) as link:
        live = await _seen(link, api)
        way = await _way_of(link, options, live)
        levels = _delays(way, options, live)
        wanted = {milliseconds("drain", delay) for delay in delays}
        if unknown := wanted - set(levels.values()):
            there = ", ".join(f"{ms / 1000:g}" for ms in sorted(set(levels.values())))
            raise UsageError(
                f"drain {queue}: expected delays of layout {way} ({there or 'none'} s), got "
                f"{', '.join(f'{ms / 1000:g}' for ms in sorted(unknown))} s"
            )
        connection = await link.connection("declare")
        chosen = [
            level
            for level, ms in levels.items()
            if (not wanted or ms in wanted) and await counts_of(connection, level) is not None
        ]
    return {level: await drain_level(addresses, way, queue, level) for level in chosen}


@asynccontextmanager
async def _visit(addresses: Sequence[Address], name: str) -> AsyncIterator[Link]:
    """A link of its own, for a question: to the first host that answers."""
    *others, last = addresses
    link = Link(last, f"{name}: statistics")
    for address in others:
        found = Link(address, link.name)
        try:
            await found.connection("declare")
        except CannotConnect:
            continue
        link = found
        break
    try:
        yield link
    finally:
        await link.close()
