"""A ladder's queues for delays that are no rung's: declared when a letter first needs one.

Like a rung it holds its letters for one time and passes them on, at least once, to the queue's own
`__retry_dlx`; unlike a rung its time is in its name and never changes.
"""

from __future__ import annotations

from deadletter.broker.session import Link
from deadletter.consumer.queues.layout_routes import extra_rung_name
from deadletter.core.layouts.naming import around
from deadletter.core.layouts.pieces import delay_queue
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE


def delay_of(queue: str, target: str) -> int | None:
    """How long letters wait in this queue; None when it is not such a queue of `queue`."""
    digits = target.rpartition(".")[2].removesuffix("ms")
    if digits.isdecimal() and len(digits) <= 10 and target == extra_rung_name(queue, int(digits)):
        return int(digits)
    return None


def is_extra_rung(queue: str, target: str) -> bool:
    return delay_of(queue, target) is not None


async def declare_rung(link: Link, queue: str, target: str) -> None:
    """Declare the queue for this delay."""
    delay_ms = delay_of(queue, target)
    assert delay_ms is not None
    back = around("", queue, "__retry_dlx")
    rung = delay_queue(target, {"dead-letter-exchange": back, "message-ttl": delay_ms})
    async with await link.channel() as channel:
        await channel.declare_queue(target, arguments={X_QUEUE_TYPE: rung.type, **rung.arguments})
