"""The end of a dead letter's route: a queue that takes it, one that may refuse it, or none.

Shared by the rules about refusals, about neglect and about what a live broker shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.letter.field_table import Value
from deadletter.core.text.durations import duration_text
from deadletter.core.topology.routing import Reach
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, DestinationKind, Queue
from deadletter.doctor.rules.case import Case
from deadletter.doctor.rules.path_words import exchange_step, is_sure, key_step, queue_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Where a route ends without a queue."""

    steps: tuple[str, ...]
    whole: bool
    """Whether no letter gets through; else only those with a key that no binding takes."""


def death_step(queue: Queue) -> str:
    """How letters leave a queue: in one with a TTL they wait for it."""
    return "rejected" if queue.ttl_ms is None else f"expired after {duration_text(queue.ttl_ms)}"


def way_out(queue: Queue, reach: Reach) -> tuple[str, ...]:
    """The first steps of a letter that dies there."""
    return (queue_step(queue.name), death_step(queue), exchange_step(reach.exchange), key_step(reach.keys))


def setting_step(key: str, value: Value) -> str:
    """A setting as a step of a path: `max-length 10`."""
    return " ".join((key, str(value)))


def keeps_what_fails(queue: Queue) -> bool:
    """Whether dead letters wait in it until their target has confirmed them; without `reject-publish`
    RabbitMQ quietly falls back to at-most-once."""
    return queue.at_least_once and queue.overflow == "reject-publish"


def can_refuse(queue: Queue) -> bool:
    """Whether it turns letters away when it is full. Quorum queues do not know `reject-publish-dlx`."""
    refusing = ("reject-publish",) if queue.type == "quorum" else ("reject-publish", "reject-publish-dlx")
    limited = queue.max_length is not None or queue.max_length_bytes is not None
    return limited and queue.overflow in refusing


def is_full(queue: Queue) -> bool:
    return queue.state is not None and queue.max_length is not None and queue.state.ready >= queue.max_length


def gap_of(case: Case, reach: Reach) -> Gap | None:
    """Where letters on this route find no queue; None where they all do, or where one cannot tell."""
    if reach.missing is not None:
        on_the_way = () if reach.missing == reach.exchange else (exchange_step(reach.missing),)
        return Gap(steps=(*on_the_way, "no such exchange"), whole=not reach.queues)
    if reach.complete or not is_sure(case, reach):
        return None
    if reach.exchange == DEFAULT_EXCHANGE:
        return Gap(steps=("no such queue",), whole=not reach.queues)
    return Gap(
        steps=("no binding",) if not reach.queues else ("no binding for some",), whole=not reach.queues
    )


def dead_letter_exchanges(case: Case) -> frozenset[str]:
    """Those that queues die into, and where these lead."""
    found = {queue.dead_letter_exchange for queue in case.topology.queues.values()}
    pending = [name for name in found if name is not None]
    reached = set(pending)
    while pending:
        name = pending.pop()
        exchange = case.topology.exchanges.get(name)
        further = [b.destination for b in case.router.bindings_from(name) if b.to is DestinationKind.EXCHANGE]
        if exchange is not None and exchange.alternate is not None:
            further.append(exchange.alternate)
        for there in further:
            if there not in reached:
                reached.add(there)
                pending.append(there)
    return frozenset(reached)
