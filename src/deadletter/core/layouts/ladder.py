"""`ladder`, the library inside the consumer: for each queue a rung per retry, straight back to it.

The consumer publishes retry n to `<queue>__retry_exchange` with the key `<queue>__retry.<n>`, confirmed, and
acks. The rung of that name holds the letter for its one TTL and passes it on, at least once, to
`<queue>__retry_dlx`, a fanout exchange bound to the queue alone. A letter without retries left, or one that
must not be retried, is rejected and dies into `<queue>__dlq`.

On the way back the letter has the rung's key. The one it first came by is in a header of ours, and the
consumer shows it to the handler.
"""

from __future__ import annotations

from typing import Final

from deadletter.core.layouts.application import dead_lettering
from deadletter.core.layouts.naming import around
from deadletter.core.layouts.pieces import Parts, adjustable_delay, plan_of, resting_queue, towards
from deadletter.core.layouts.request import MAX_QUEUES, Correction, Plan, Request, steps
from deadletter.core.topology.vhost import Binding, Exchange
from deadletter.errors import UsageError

NAME = "ladder"
_OTHERS: Final = (
    "What jitter and error rules choose beside it, a consumer opens when it needs it "
    "(<queue>__retry.<ms>ms); adapters keep to these."
)
CORRECTIONS: Final = (
    Correction(
        document_says="each retry carries its own expiration, in queues without a TTL",
        we_declare="one TTL per <queue>__retry.<n>, as a policy",
        why="a queue lets letters out in order: a second behind a minute waits a minute; and a frozen TTL "
        "could not be changed without a 406",
    ),
    Correction(
        document_says="delays in seconds times 10,000",
        we_declare="the schedule's delays, in milliseconds",
        why="a second has 1,000 of them",
    ),
    Correction(
        document_says="rejected letters go to a dead-letter queue that nothing declares",
        we_declare="<queue>__dlq, and a dead-letter policy on the queue that leads there",
        why="without a dead-letter exchange the broker throws away what is rejected",
    ),
    Correction(
        document_says="a retry may be published to <queue>__retry.<max + 1>",
        we_declare="rungs 1 to max; the letter after the last one is rejected into <queue>__dlq",
        why="there is no such queue, and an unroutable message vanishes without a word",
    ),
    Correction(
        document_says="rungs of the default type",
        we_declare="quorum queues that pass on at least once",
        why="a classic queue passes on at most once",
    ),
)


def retry_exchange_name(queue: str) -> str:
    return around("", queue, "__retry_exchange")


def rung_name(queue: str, retry: int) -> str:
    """The queue of the n-th retry, counted from 1, and the key that leads to it."""
    return around("", queue, f"__retry.{retry}")


def dlq_name(queue: str) -> str:
    return around("", queue, "__dlq")


def design(request: Request) -> Plan:
    delays_ms, notes = steps(NAME, request, others=_OTHERS)
    retries = request.schedule.retries
    if retries > MAX_QUEUES:
        raise UsageError(
            f"layout {NAME}: expected at most {MAX_QUEUES} retries, each is a queue, got {retries}; "
            "lower them, or take the layout return, which shares its delays"
        )
    queue, dlq = request.queue, dlq_name(request.queue)
    back = around("", queue, "__retry_dlx")
    parts = resting_queue(request, dlq) + dead_lettering(NAME, request, towards(dlq))
    parts += Parts(
        exchanges=(
            Exchange(name=retry_exchange_name(queue), type="topic"),
            Exchange(name=back, type="fanout"),
        ),
        bindings=(Binding(source=back, destination=queue),),
        notes=notes,
    )
    for retry in range(1, retries + 1):
        rung = rung_name(queue, retry)
        delay_ms = delays_ms[min(retry, len(delays_ms)) - 1]
        parts += adjustable_delay(request, rung, delay_ms, {"dead-letter-exchange": back})
        bound = Binding(source=retry_exchange_name(queue), destination=rung, routing_key=rung)
        parts += Parts(bindings=(bound,))
    return plan_of(NAME, request, parts, CORRECTIONS)
