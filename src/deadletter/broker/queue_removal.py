"""Deleting a queue that is the one we mean, empty and unused, and no other.

A queue has no identity but its name: between our look and our hand somebody may have put another in its
place. So it is first declared as we know it, which changes nothing where it is that queue and is refused
(406) where it is another; the answer tells letters and consumers; and it is deleted in the next breath.

A classic queue is deleted by the broker under the conditions that it is empty and unused, in one step. Quorum
queues know no such conditions. A letter that somebody publishes by the queue's name in between goes with it,
as it would right afterwards, when there is no such queue: whoever calls this has made sure that nobody does,
and is told how many did.
"""

from __future__ import annotations

from deadletter.amqp.channel import Channel
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.vhost import Queue
from deadletter.errors import MoveFailed, PreconditionFailed


async def delete_empty(channel: Channel, queue: Queue) -> int:
    """How many letters went with it: those that came in the last instant, by name, to a quorum queue.

    Raises MoveFailed when it is another queue, not empty, or has consumers; nothing has happened then, but
    the channel is closed.
    """
    try:
        found = await channel.declare_queue(
            queue.name, durable=queue.durable, arguments=declared_arguments(queue)
        )
    except PreconditionFailed as error:
        raise MoveFailed(
            f"{queue.name!r} is not deleted: it is no longer the queue it was ({error.text})"
        ) from error
    if found.message_count or found.consumer_count:
        raise MoveFailed(
            f"{queue.name!r} is not deleted: it has {found.message_count} letters and "
            f"{found.consumer_count} consumers"
        )
    if queue.type != "classic":
        return await channel.delete_queue(queue.name)
    try:
        return await channel.delete_queue(queue.name, if_unused=True, if_empty=True)
    except PreconditionFailed as error:
        raise MoveFailed(f"the broker does not delete {queue.name!r}: {error.text}") from error
