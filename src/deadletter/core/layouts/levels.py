"""`levels`, the processor with numbered delays: one retry queue for all, and a delay per attempt.

Every application queue dead-letters into `retry-queue`. The processor publishes retry n to `route-delay` with
`binding.<routing key>.<n>`; `queue.delay.<n>` holds it and passes it on to `retry-queue-<n>`, from where the
processor publishes it to the fanout exchange that leads to its origin alone. More retries than levels: the
last level. No retries left: `dlq-exchange` with `dlq-routing-key`.

The dead-letter key of a delay overwrites the letter's own, so the processor carries the origin, exchange and
key in headers of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deadletter.core.layouts.application import dead_lettering
from deadletter.core.layouts.naming import around
from deadletter.core.layouts.pieces import Parts, adjustable_delay, plan_of, resting_queue, towards, way_back
from deadletter.core.layouts.request import Correction, Plan, Request, steps
from deadletter.core.topology.vhost import Binding, Exchange

NAME = "levels"
RETRY_EXCHANGE: Final = "retry-exchange"
RETRY_KEY: Final = "retry-routing-key"
RETRY_QUEUE: Final = "retry-queue"
DELAY_EXCHANGE: Final = "route-delay"
DLQ_EXCHANGE: Final = "dlq-exchange"
DLQ_KEY: Final = "dlq-routing-key"
DLQ_QUEUE: Final = "dlq-queue"
DELAY_QUEUE: Final = "queue.delay."
"""Before the number of a level."""

CORRECTIONS: Final = (
    Correction(
        document_says="dlq-queue is bound to dlq-exchange with the key dlq-exchange",
        we_declare="bound with dlq-routing-key",
        why="letters are published with dlq-routing-key; with the other binding each of them would vanish",
    ),
    Correction(
        document_says="retry-queue-<n> is bound without a key",
        we_declare="bound with retry.#.<n>",
        why="the delay's dead-letter key is that very text, retry.#.<n>; an empty binding never matches it",
    ),
    Correction(
        document_says="1000, 1500 and 2000 seconds in the picture; TTLs frozen into the delay queues",
        we_declare="the schedule's delays, 10, 15 and 20 s in the document's arguments, as policies",
        why="the arguments are right and the picture is not; and a frozen TTL cannot be changed: "
        "the next declaration ends in 406",
    ),
    Correction(
        document_says="retries are republished to the exchange the letter first came by",
        we_declare="a fanout exchange deadletter.return.<queue>, bound to the queue that failed alone",
        why="the exchange would feed every other subscriber again",
    ),
    Correction(
        document_says="queues of the default type",
        we_declare="quorum queues, delays that pass on at least once, no delivery limit",
        why="a classic queue passes on at most once; from RabbitMQ 4.0 on twenty crashes of the processor "
        "would destroy what it held",
    ),
)
_SHARED: Final = (
    "the delays queue.delay.<n> serve every queue of the vhost: plan all of them with one schedule."
)


def level_of(retry: int, count: int) -> int:
    """The level of the n-th retry, counted from 1: beyond the last, the last."""
    return min(retry, count)


def delay_key(routing_key: str, level: int) -> str:
    """The key that leads a letter to a level; a key too long to be put in it is shortened, as names are."""
    return around("binding.", routing_key, f".{level}")


def delay_queue_name(level: int) -> str:
    return f"{DELAY_QUEUE}{level}"


def due_queue_name(level: int) -> str:
    return f"{RETRY_QUEUE}-{level}"


def design(request: Request) -> Plan:
    delays_ms, notes = steps(NAME, request, others="Error rules use these too.")
    notes += (_SHARED,)
    parts = dead_lettering(NAME, request, towards(RETRY_KEY, exchange=RETRY_EXCHANGE))
    parts += shared(request, delays_ms) + Parts(notes=notes)
    return plan_of(NAME, request, parts + way_back(request), CORRECTIONS)


def shared(request: Request, delays_ms: Sequence[int]) -> Parts:
    """What serves every queue: the retry queue, the numbered delays, the queue for permanent failures."""
    parts = _reached(request, RETRY_EXCHANGE, RETRY_QUEUE, RETRY_KEY)
    parts += _reached(request, DLQ_EXCHANGE, DLQ_QUEUE, DLQ_KEY)
    parts += Parts(exchanges=(Exchange(name=DELAY_EXCHANGE, type="topic"),))
    for level, delay_ms in enumerate(delays_ms, start=1):
        parts += _level(request, level, delay_ms)
    return parts


def _level(request: Request, level: int, delay_ms: int) -> Parts:
    exchange, key = f"{RETRY_EXCHANGE}-{level}", f"retry.#.{level}"
    delay = delay_queue_name(level)
    bound = Binding(source=DELAY_EXCHANGE, destination=delay, routing_key=f"binding.#.{level}")
    return (
        adjustable_delay(request, delay, delay_ms, towards(key, exchange=exchange))
        + Parts(bindings=(bound,))
        + _reached(request, exchange, due_queue_name(level), key)
    )


def _reached(request: Request, exchange: str, queue: str, key: str) -> Parts:
    """A topic exchange, and the queue that its key leads to."""
    return resting_queue(request, queue) + Parts(
        exchanges=(Exchange(name=exchange, type="topic"),),
        bindings=(Binding(source=exchange, destination=queue, routing_key=key),),
    )
