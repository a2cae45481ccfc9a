"""How a queue whose arguments are frozen wrong gets the right ones: the steps, and what a crash leaves.

RabbitMQ never changes the arguments of a queue. The queue must go and come back, its letters must wait
somewhere meanwhile, and nothing may be lost or multiplied. `service.migrate` performs these steps; this page
says them, so that a person can read them before, or do them by hand.

    step                                                       a crash after it leaves
    1  declare the waiting queue, without TTL, limits or DLX   an empty queue of ours more
    2  bind it as the old queue is bound, then unbind the old  letters that come meanwhile are in both
    3  move everything from the old queue to the waiting one   letters in either; those under way in both
    4  delete the old queue, once it is empty and unused       the waiting queue holds everything
    5  declare the new queue as planned                        the same, and an empty new queue
    6  move everything from the waiting queue to the new one   letters in either; those under way in both
    7  bind the new queue, then unbind the waiting one         letters that come meanwhile are in both
    8  move the rest, delete the waiting queue once it is empty, and the exchanges of 3 and 6

Steps 3 and 6 go through fanout exchanges of ours that lead to one queue each: so a letter keeps its key.

What is there tells where an earlier run stopped, so a second run goes on from there: the waiting queue is the
journal, and its bindings are the record of how the old queue was bound. Between two bindings a letter can be
in both queues but never in none, because RabbitMQ cannot exchange one binding for another at once. A letter
that looks like the copy of one that has arrived is not dropped, because two letters can be equal: it is set
aside, in a queue of its own, and said.
"""

from __future__ import annotations

from typing import Final

from deadletter.core import names
from deadletter.core.layouts.naming import around
from deadletter.core.topology import DEFAULT_EXCHANGE, Queue, Topology

WAITING: Final = f"{names.PREFIX}migrating."
"""Before the name of a queue: where its letters wait while it is away."""
COPIES: Final = f"{names.PREFIX}copies."
"""Before the name of a queue: letters that look like copies an interrupted migration left."""
BACK: Final = f"{names.PREFIX}migrated."
"""Before the name of a queue: the exchange by which its letters come back. By which they go is `WAITING`."""
GUARD: Final = f"{names.PREFIX}migration"
"""The policy that keeps other people's policies, and their limits, off the two."""
GUARD_PATTERN: Final = r"^deadletter\.(migrating|copies)\."
GUARD_PRIORITY: Final = 1_000_000


def waiting_name(queue: str) -> str:
    return around(WAITING, queue)


def back_name(queue: str) -> str:
    return around(BACK, queue)


def copies_name(queue: str) -> str:
    return around(COPIES, queue)


def feeders(queue: str, live: Topology) -> tuple[str, ...]:
    """Queues whose dead letters come to this one by name, and are lost while there is no such name.

    A queue that dead-letters at least once is none of them: it holds what it cannot deliver.
    """
    return tuple(
        sorted(
            other.name
            for other in live.queues.values()
            if other.dead_letter_exchange == DEFAULT_EXCHANGE
            and other.dead_letter_key == queue
            and other.name != queue
            and not other.at_least_once
        )
    )


def steps(queue: Queue, live: Topology) -> tuple[str, ...]:
    """The migration of this queue, step by step, with the names filled in. `queue` is the planned one."""
    name, waiting = queue.name, waiting_name(queue.name)
    bound = [f"{b.source} ({b.routing_key})" for b in live.bindings if b.destination == name and b.source]
    fed = feeders(name, live)
    where = f" ({', '.join(bound)})" if bound else " (it has no bindings but the default one)"
    return (
        f"stop the consumers of {name}"
        + (f", and whatever lets letters die in {', '.join(fed)}" if fed else "")
        + f"; whoever publishes to {name} by its name finds nothing there between steps 4 and 5",
        f"declare {waiting}: {queue.type}, durable, without TTL, limits or dead-letter exchange",
        f"bind {waiting} as {name} is bound{where}, then unbind {name}",
        f"dlq move --keep-deaths {name} {waiting}, until {name} is empty",
        f"delete {name} if it is empty and unused; declare it as planned",
        f"dlq move --keep-deaths {waiting} {name}; bind {name}, unbind {waiting}; move the rest",
        f"delete {waiting} if it is empty",
        "dlq topology apply --migrate does all of this, and goes on where it was interrupted",
    )
