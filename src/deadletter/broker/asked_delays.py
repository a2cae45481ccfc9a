"""Queues that nobody planned, made with the first letter: a handler asked for a delay, a gate keeps letters.

There may be hundreds of them, so what nobody uses goes again (`broker.housekeeping`). A quorum queue cannot
be deleted under the condition that it is empty, and a letter that comes between the look and the deletion
would be gone, confirmed. So these queues are not reached by their name but through an exchange,
`deadletter.asked`, with the name as key: unbound, a queue gets nothing any more, publishers get their letters
back (they publish mandatory) and open the queue again.

A queue is *open* while it is bound by its name, and *closing* while it is bound by another key, to which
nobody publishes: so the broker itself keeps the record of what is ours and where the housekeeping stopped.
Whoever opens a queue holds its lease while he does, and so does whoever deletes it: what was opened again is
seen, and stays.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from deadletter.amqp.channel import Channel
from deadletter.broker.lease import Lease
from deadletter.broker.session import Link
from deadletter.core.layouts.naming import ASKED, around
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.vhost import Queue
from deadletter.errors import MoveFailed, PreconditionFailed, WireError

PATIENCE_S: Final = 30.0
"""So long it may take whoever deletes a queue, or opens it, to let others have its lease."""
_CLOSING: Final = "closing "


def closing_key(queue: str) -> str:
    return around(_CLOSING, queue)


def lease_for(queue: str) -> str:
    return f"delay.{queue}"


async def open_delay(link: Link, queue: Queue, *, as_it_is: bool = False) -> None:
    """See to it that it is there, and that letters come to it. Raises MoveFailed when that takes too long.

    `as_it_is`: one that is there with other arguments will do.
    """
    connection = await link.connection("declare")
    lease = await Lease.wait(connection, lease_for(queue.name), PATIENCE_S)
    if lease is None:
        raise MoveFailed(
            f"queue {queue.name} is being deleted for {PATIENCE_S:.0f} s; somebody holds its lease"
        )
    try:
        try:
            async with await connection.channel() as channel:
                await channel.declare_queue(queue.name, arguments=declared_arguments(queue))
        except PreconditionFailed:
            if not as_it_is:
                raise
        async with await connection.channel() as channel:
            await lay_exchange(channel)
            await channel.bind_queue(queue.name, ASKED, queue.name)
            await channel.unbind_queue(queue.name, ASKED, closing_key(queue.name))
    finally:
        with suppress(WireError):
            await lease.release()


async def lay_exchange(channel: Channel) -> None:
    await channel.declare_exchange(ASKED, "direct")
