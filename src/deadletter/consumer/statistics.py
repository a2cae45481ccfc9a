"""How full the queues around a handler are, and letting out at once what waits in one of its delays.

Both work on connections of their own, whether the consumer runs or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from deadletter.amqp.address import Address
from deadletter.broker.live_topology import read_topology
from deadletter.broker.queue_counts import counts_of, counts_of_existing
from deadletter.broker.session import Link
from deadletter.consumer.queues.declared_layouts import planned_for
from deadletter.consumer.queues.layout_routes import delays_of, parked_in
from deadletter.consumer.queues.queue_options import QueueOptions
from deadletter.core.deciding.backoff import Schedule
from deadletter.core.layouts.naming import DUE
from deadletter.core.letter import names
from deadletter.core.letter.envelope import Deaths
from deadletter.core.letter.letter import Letter
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.errors import ManagementRefused, UsageError
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


async def way_of(link: Link, api: str | None, options: QueueOptions) -> ConsumerLayout:
    """The layout a queue is in; what `auto` means depends on the broker and the queue."""
    if options.layout != "auto":
        return ConsumerLayout(options.layout)
    try:
        live = await read_topology(link.address, api)
    except ManagementRefused:
        live = None
    version = (await link.connection("declare")).server_version if live is None else live.version
    return ConsumerLayout(planned_for(options, live, version).layout)


async def queue_statistics(
    link: Link, way: ConsumerLayout, queue: str, schedule: Schedule, more: Sequence[Schedule] = ()
) -> QueueStatistics:
    """As it is now. QueueMissing when the queue itself is not there; what else is missing counts as empty."""
    connection = await link.connection("declare")
    counted = await counts_of_existing(connection, queue)
    levels = []
    for name, delay_ms in delays_of(way, queue, schedule, more).items():
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
