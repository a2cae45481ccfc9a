"""How many messages of a queue are ready and how many consumers it has, by a passive `queue.declare`.

It needs no management API and changes nothing. The price: of a queue that is not there the broker closes the
channel (404), so who just wants to know gets a channel for the question.
"""

from __future__ import annotations

from typing import NamedTuple

from deadletter.amqp.channel import Channel
from deadletter.amqp.connection import Connection
from deadletter.errors import NotFound, QueueMissing


class QueueCounts(NamedTuple):
    """What the broker answers. Messages that somebody holds unacked are in neither."""

    ready: int
    consumers: int


async def counts_on(channel: Channel, queue: str) -> QueueCounts:
    """On a channel of the caller's; NotFound when there is no such queue, and then the channel is closed."""
    found = await channel.declare_queue(queue, passive=True)
    return QueueCounts(found.message_count, found.consumer_count)


async def counts_of(connection: Connection, queue: str) -> QueueCounts | None:
    """On a channel for this question; None when there is no such queue."""
    try:
        async with await connection.channel() as channel:
            return await counts_on(channel, queue)
    except NotFound:
        return None


async def counts_of_existing(connection: Connection, queue: str) -> QueueCounts:
    """The same of a queue that has to be there: QueueMissing when it is not."""
    found = await counts_of(connection, queue)
    if found is None:
        raise QueueMissing(queue, connection.address.vhost)
    return found
