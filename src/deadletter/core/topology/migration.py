"""How a queue whose arguments are frozen wrong gets the right ones: the steps, and what a crash leaves.

RabbitMQ never changes the arguments of a queue. The queue must go and come back, its letters must wait
somewhere meanwhile, those that come meanwhile too, and nothing may be lost or multiplied.
`operations.migrating.swap` performs these steps; this page says them, so that a person can read them before.

    step                                                        a crash after it leaves
    1  declare the waiting queue, without TTL, limits or DLX,   two exchanges and an empty queue of ours
       and the detour, bound to the old queue
    2  bind the detour as the old queue is bound, then unbind   every letter in the old queue, by one way or
       the old queue                                            by both
    3  unbind the old queue from the detour                     letters that come wait
    4  move everything from the old queue to the waiting one    letters in either; those under way in both
    5  delete the old queue, once it is empty and unused        the waiting queue holds everything
    6  declare the queue as planned                             the same, and an empty new queue
    7  bind the new queue to the detour                         letters that come are in the new queue
    8  move everything from the waiting queue to the new one    letters in either; those under way in both
    9  bind the new queue as the detour is bound, then unbind   every letter in the new queue, by one way or
       the detour                                               by both
    10 delete the detour, then the waiting queue                nothing

RabbitMQ cannot exchange one binding for another at once: bound to two queues a letter is in both, bound to
none it is in none. The *detour* is an exchange between the others and the queue, and it makes each change a
single one. A letter that reaches the same queue by two ways arrives once: so steps 2 and 9 neither lose nor
double. And what the detour has no queue for goes to its alternate exchange, which leads to the waiting queue:
so step 3 and step 7 are one unbinding and one binding, and each letter goes either here or there.

What comes while a queue is away goes into the new queue before what waits has come back: so the letters that
come need not stop for the migration to end. Order is not kept.

What is there tells where an earlier run stopped, so a second run goes on from there: the waiting queue is the
journal. The record of the bindings are those of the detour, and it is deleted after the queue has them all.
A letter that looks like the copy of one that has arrived is not dropped, because two letters can be equal: it
is set aside, in a queue of its own, and said.

A migration that cannot go on puts back what it found: steps 7 to 10 with whatever queue is there. So it ends
in one of two states, before and after, and both can stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deadletter.core.layouts.naming import around
from deadletter.core.letter import names
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Queue, Topology, topology

WAITING: Final = f"{names.PREFIX}migrating."
"""Before the name of a queue: where its letters wait while it is away."""
COPIES: Final = f"{names.PREFIX}copies."
"""Before the name of a queue: letters that look like copies an interrupted migration left."""
DETOUR: Final = f"{names.PREFIX}detour."
"""Before the name of a queue: the exchange by which letters come to it, or to where they wait."""
TRIAL: Final = f"{names.PREFIX}trial."
"""Before the name of a queue: one with the planned arguments, for a moment, to see that the broker takes
them."""
GUARD: Final = f"{names.PREFIX}migration"
"""The policy that keeps other people's policies, and their limits, off the two."""
GUARD_PATTERN: Final = r"^deadletter\.(migrating|copies)\."
GUARD_PRIORITY: Final = 1_000_000


def waiting_name(queue: str) -> str:
    return around(WAITING, queue)


def detour_name(queue: str) -> str:
    return around(DETOUR, queue)


def trial_name(queue: str) -> str:
    return around(TRIAL, queue)


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
    name, waiting, detour = queue.name, waiting_name(queue.name), detour_name(queue.name)
    bound = [f"{b.source} ({b.routing_key})" for b in live.bindings if b.destination == name and b.source]
    fed = feeders(name, live)
    where = f" ({', '.join(bound)})" if bound else " (it has no bindings but the default one)"
    before = f"stop the consumers of {name}"
    if fed:
        before += f", and whatever lets letters die in {', '.join(fed)}"
    before += (
        f", and whoever publishes to {name} by its name (the default exchange): for a moment there is no "
        "such queue. Whoever publishes through other exchanges need not stop"
    )
    away = (
        f"declare {detour}: fanout, with {waiting} as its alternate exchange, bound to {name}; bind it as "
        f"{name} is bound{where}, then unbind {name}; then unbind {name} from {detour}"
    )
    rest = f"{queue.type}, durable, without TTL, limits or dead-letter exchange"
    swapped = f"delete {name} if it is empty and unused (consumers that are there get a basic.cancel)"
    whole = (
        "dlq topology apply --migrate does all of this, one migration of a queue at a time, goes on where it "
        "was interrupted, and puts everything back if it cannot go on"
    )
    return (
        before,
        f"declare {waiting}: {rest}; and a fanout exchange of that name which leads to it",
        away,
        f"dlq move --keep-deaths {name} {waiting}, until {name} stays empty",
        f"{swapped}; declare it as planned",
        f"bind {name} to {detour}; dlq move --keep-deaths {waiting} {name}",
        f"bind {name} as {detour} is bound, then delete {detour}, and {waiting} if it is empty",
        whole,
    )


_HARMFUL: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "dead-letter-exchange", "delivery-limit"}
)


def obstacle(planned: Queue, old: Queue, live: Topology, depths: Mapping[str, int]) -> str:
    """Why this migration must not begin; empty: nothing stands against it."""
    name, state = old.name, old.state
    if old.type not in ("classic", "quorum") or planned.type not in ("classic", "quorum"):
        return (
            f"{name} is of type {old.type} and planned as {planned.type}; letters can be moved only between "
            "classic and quorum queues"
        )
    if old.exclusive or old.auto_delete:
        return (
            f"{name} is exclusive or auto-delete: it goes with whoever uses it, and then it can be declared"
        )
    assert state is not None
    if state.consumers:
        who = ", ".join(sorted({consumer.connection or consumer.tag for consumer in state.consumers})[:3])
        return (
            f"{name} has {len(state.consumers)} consumers ({who}); they would lose their queue: stop them "
            "and run this again"
        )
    then = topology(queues=[planned], policies=live.policies).queues[name]
    letters = max(state.messages, depths[name]) + depths.get(waiting_name(name), 0)
    if then.max_length is not None and letters > then.max_length:
        return (
            f"{name} holds {letters} letters and is planned to hold {then.max_length} at most; "
            "take some out first"
        )
    for feeder in feeders(name, live):
        busy = live.queues[feeder].state
        if busy is None or busy.consumers or busy.messages or depths[feeder]:
            return (
                f"dead letters of {feeder} come to {name} by its name and would be lost while it is away; "
                f"stop the consumers of {feeder} and empty it, or let it dead-letter through an exchange"
            )
    return ""


def harm(queues: Sequence[Queue], policies: Sequence[BrokerPolicy]) -> list[str]:
    """Settings of policies that could destroy letters in these queues."""
    return sorted(
        {
            key
            for queue in topology(queues=queues, policies=policies).queues.values()
            for key, value in queue.effective.items()
            if key in _HARMFUL and not (key == "delivery-limit" and isinstance(value, int) and value < 0)
        }
    )
