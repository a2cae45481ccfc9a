"""`return`, our own layout: shared delays, one way back per queue.

A letter dies into the dead-letter queue of its own queue. Whoever decides publishes it to a level, one of a
few queues with one TTL each that all origins share; from there the broker moves it, at least once, to
`deadletter.due`, which always exists and is never full. Who takes it from there publishes it, mandatory and
confirmed, to the fanout exchange that is bound to its origin alone, with the key it first came by. After the
last retry it is published to `deadletter.parked`.

The levels do not lead to the origins themselves: 32 letters whose origin is missing or full would stop a
level for everyone.
"""

from __future__ import annotations

from collections.abc import Iterable

from deadletter.core.layouts.application import own_dlq
from deadletter.core.layouts.naming import DUE, dlq_name, level_name
from deadletter.core.layouts.pieces import (
    Parts,
    delay_queue,
    parked,
    plan_of,
    resting_place,
    towards,
    way_back,
)
from deadletter.core.layouts.request import Correction, Plan, Request

NAME = "return"
CORRECTIONS: tuple[Correction, ...] = ()


def design(request: Request) -> Plan:
    parts = own_dlq(request, dlq_name(request.queue)) + way_back(request)
    parts += shared(request, request.schedule.levels_ms | request.more_levels_ms)
    return plan_of(NAME, request, parts, CORRECTIONS)


def shared(request: Request, levels_ms: Iterable[int]) -> Parts:
    """What serves every queue: the levels, what is due, what is parked."""
    levels = [
        delay_queue(level_name(delay_ms), {**towards(DUE), "message-ttl": delay_ms})
        for delay_ms in sorted(levels_ms)
    ]
    return parked(request) + Parts(queues=(resting_place(request, DUE), *levels))
