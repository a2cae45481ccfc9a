"""A ladder's queues for delays that are no rung's: opened when a letter first needs one. Pure.

Like a rung it holds its letters for one time and passes them on, at least once, to the queue's own
`__retry_dlx`; unlike a rung its time is in its name and never changes.
"""

from __future__ import annotations

from deadletter.consumer.queues.layout_routes import extra_rung_name
from deadletter.core.layouts.naming import around
from deadletter.core.layouts.pieces import delay_queue
from deadletter.core.topology.vhost import Queue


def delay_of(queue: str, target: str) -> int | None:
    """How long letters wait in this queue; None when it is not such a queue of `queue`."""
    digits = target.rpartition(".")[2].removesuffix("ms")
    if digits.isdecimal() and len(digits) <= 10 and target == extra_rung_name(queue, int(digits)):
        return int(digits)
    return None


def extra_rung(queue: str, target: str) -> Queue | None:
    """The queue for this delay; None when `target` is no such queue of `queue`."""
    delay_ms = delay_of(queue, target)
    if delay_ms is None:
        return None
    back = around("", queue, "__retry_dlx")
    return delay_queue(target, {"dead-letter-exchange": back, "message-ttl": delay_ms})
