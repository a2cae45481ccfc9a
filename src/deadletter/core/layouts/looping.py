"""`loop`, quorum queues all the way: the queue and its retry queue dead-letter into each other.

The consumer rejects a letter that may be retried; it dies into `<queue>.retry`, waits there for the one TTL,
and dies back into the queue. The broker moves and counts it: the sum of its `rejected` deaths is the attempt.
A letter without retries left, or one that must not be retried, the consumer publishes to the fanout exchange
`<queue>.dlq`, confirmed, and acks.

The danger is a way round without a rejection. RabbitMQ takes it for a cycle and drops the letter silently,
and a queue has one dead-letter exchange for all reasons. So on the queue itself nothing but a rejection may
let a letter die: no delivery limit, no TTL, no length limit that drops. The consumer counts the deliveries
instead (`x-delivery-count`) and publishes one that killed it too often to `<queue>.dlq`.
"""

from __future__ import annotations

from typing import Final

from deadletter.core.layouts.application import dead_lettering, operator_settings, settings_now
from deadletter.core.layouts.naming import around, dlq_name
from deadletter.core.layouts.pieces import (
    Parts,
    adjustable_delay,
    plan_of,
    resting_queue,
    towards,
    unlimited,
)
from deadletter.core.layouts.request import Correction, Plan, Request
from deadletter.core.topology.vhost import Binding, Exchange
from deadletter.errors import UsageError

NAME = "loop"
CORRECTIONS: Final = (
    Correction(
        document_says="nothing of a delivery limit, so RabbitMQ 4 has its default of 20, and the letter it "
        "strikes goes to <queue>.retry",
        we_declare="no delivery limit on the queue; the consumer publishes what was delivered too often to "
        "<queue>.dlq",
        why="limit, expiry and back is a way round without a rejection: a cycle, and the broker drops it",
    ),
    Correction(
        document_says="dead-letter exchange, key and TTL are arguments",
        we_declare="on the queue a policy; on <queue>.retry the TTL is a policy",
        why="frozen, a changed delay ends in 406 at the next declaration",
    ),
    Correction(
        document_says="dead-lettering as RabbitMQ does it by itself",
        we_declare="at least once, with overflow reject-publish, in both directions",
        why="by itself it is at most once, and a node that stops at the wrong moment loses the letter",
    ),
)
_EXPIRING: Final = (
    "a message that expires in the queue itself, by its own expiration, is dropped by the broker as a cycle: "
    "publish without expiration here, or take the layout return."
)
_KEY: Final = (
    "the letter comes back with the queue's name as its key; the one it first came by is in its x-death."
)


def retry_queue_name(queue: str) -> str:
    return around("", queue, ".retry")


def design(request: Request) -> Plan:
    delays_ms = request.schedule.levels_ms
    if len(delays_ms) != 1:
        got = ", ".join(f"{delay_ms} ms" for delay_ms in sorted(delays_ms)) or "none"
        raise UsageError(
            f"layout {NAME}: expected one delay, the same for every retry and without jitter, got {got}; "
            "give one, or take a layout with several delays, such as return"
        )
    _refuse_other_deaths(request)
    retry, dlq = retry_queue_name(request.queue), dlq_name(request.queue)
    parts = dead_lettering(NAME, request, {**towards(retry), **unlimited(request)})
    parts += adjustable_delay(request, retry, min(delays_ms), towards(request.queue))
    parts += resting_queue(request, dlq)
    parts += Parts(
        exchanges=(Exchange(name=dlq, type="fanout"),),
        bindings=(Binding(source=dlq, destination=dlq),),
        notes=(_EXPIRING, _KEY),
    )
    return plan_of(NAME, request, parts, CORRECTIONS)


def _refuse_other_deaths(request: Request) -> None:
    """Whatever else lets a letter die in the queue sends it round without a rejection."""
    now = dict(settings_now(request))
    if request.traits.limits_deliveries:  # then our policy takes a limit off, unless it is an operator's
        now["delivery-limit"] = operator_settings(request).get("delivery-limit")
    if now.get("overflow") == "reject-publish":  # then a full queue refuses, and nothing in it dies
        now["max-length"] = now["max-length-bytes"] = None
    for key in ("message-ttl", "max-length", "max-length-bytes", "delivery-limit"):
        if now.get(key) is not None:
            raise UsageError(
                f"layout {NAME}: expected queue {request.queue} without {key}, got {now[key]!r}; a letter "
                "that dies by it goes round without a rejection and the broker drops it: take it off, or "
                "take the layout return"
            )
