"""`native`, RabbitMQ's own delayed retries, from 4.3.1 on: the letter never leaves its quorum queue.

The consumer rejects with requeue. The queue holds the letter back for `min`, twice `min`, three times, up to
`max`, and after the delivery limit it dies into `<queue>.dlq`. All by policy, on the queue as it is.

Only a rejection is delayed and counted. A nack with requeue comes back at once, and with another retry type
for ever; so whoever consumes must reject. The price: a consumer that dies or loses its connection spends an
attempt of everything it held, handled or not, and after the limit the broker parks it without a word of why.
The queue has one count for both. So `auto` never takes this layout; who asks for it by name has it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deadletter.core.deciding.backoff import Schedule
from deadletter.core.layouts.application import dead_lettering
from deadletter.core.layouts.naming import dlq_name
from deadletter.core.layouts.pieces import Parts, plan_of, resting_queue, towards
from deadletter.core.layouts.request import Correction, Plan, Request
from deadletter.core.letter.field_table import Value
from deadletter.errors import UsageError

NAME = "native"
CORRECTIONS: tuple[Correction, ...] = ()
PRICE: Final = (
    "there every lost connection and every death of a consumer costs each message it held an attempt, and "
    "the broker parks what has none left, also what never failed."
)
_NOTES: Final = (
    "retry with reject and requeue: a nack comes back at once and is not counted.",
    f"the price of native: {PRICE}",
)


class NativeGrowth(NamedTuple):
    """Delays as the broker computes them: n times the least, at most the greatest."""

    least_ms: int
    greatest_ms: int


def growth(schedule: Schedule) -> NativeGrowth | None:
    """The schedule in the broker's terms; None where it cannot be said in them."""
    delays_ms = [rung[0] for rung in schedule.rungs if len(rung) == 1]
    if not delays_ms or len(delays_ms) != len(schedule.rungs):
        return None
    found = NativeGrowth(delays_ms[0], delays_ms[-1])
    linear = all(
        delay_ms == min(found.least_ms * n, found.greatest_ms) for n, delay_ms in enumerate(delays_ms, 1)
    )
    return found if linear else None


def obstacle(request: Request) -> str | None:
    """Why this layout cannot be, as `expected …, got …`; None: it can."""
    if not request.traits.native_retry_policies:
        return f"expected RabbitMQ 4.3.1 or later, got {request.version}"
    if request.type != "quorum":
        return f"expected a quorum queue, got a {request.type} one"
    if not request.schedule.retries:
        return "expected at least one retry, got none"
    if growth(request.schedule) is None:
        return (
            "expected delays that grow by the first one or stay the same, up to a cap, without jitter, "
            f"got {request.schedule.text('park')}"
        )
    return None


def design(request: Request) -> Plan:
    why_not = obstacle(request)
    found = growth(request.schedule)
    if why_not is not None or found is None:
        raise UsageError(f"layout {NAME}: {why_not}; take the layout return, which does it everywhere")
    dlq = dlq_name(request.queue)
    settings: dict[str, Value] = {
        **towards(dlq),
        "delayed-retry-type": "failed",
        "delayed-retry-min": found.least_ms,
        "delayed-retry-max": found.greatest_ms,
        "delivery-limit": request.schedule.retries,
    }
    parts = resting_queue(request, dlq) + dead_lettering(NAME, request, settings) + Parts(notes=_NOTES)
    return plan_of(NAME, request, parts, CORRECTIONS)
