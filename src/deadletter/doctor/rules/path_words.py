"""The words in which rules tell the path of a letter, and the questions about one queue that begin a path.

A path is a witness: whoever reads it can walk it on the broker, queue by queue, reason by reason. The reasons
are RabbitMQ's own, as they stand in `x-death`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from deadletter.core.topology.routing import Reach
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules.case import Case

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"

NO_DLX: Final = "no dead-letter exchange"
NO_BINDING: Final = "no binding"
_SHOWN: Final = 3
_HOLDS_FAILURES: Final = re.compile(
    r"(?:^|[^a-z])(?:dlq|dead|dead[-_.]?letters?|parked|parking|failed)(?:[^a-z]|$)", re.IGNORECASE
)


def queue_step(name: str) -> str:
    return f"queue {name}"


def in_queue(
    queue: Queue, severity: Severity, *steps: str, harm: Harm | None = None, why: str, fix: str
) -> Evidence:
    """What a rule finds in a queue; the path begins there, and these are its further steps."""
    path = (queue_step(queue.name), *steps)
    return Evidence(severity=severity, harm=harm, subject=queue.name, path=path, why=why, fix=fix)


def exchange_step(name: str) -> str:
    return "(default exchange)" if name == DEFAULT_EXCHANGE else f"exchange {name}"


def key_step(keys: Keys) -> str:
    return f"key {keys.text}" if keys.text else "the empty key"


def some(names: Iterable[str]) -> str:
    """A few names, and how many more there are: a thousand queues may share one fault."""
    every = sorted(names)
    more = len(every) - _SHOWN
    return ", ".join(every) if more <= 1 else f"{', '.join(every[:_SHOWN])} and {more} more"


def dead_lettering(case: Case) -> Iterator[tuple[Queue, str]]:
    """The queues that send their dead letters somewhere, and to which exchange."""
    for queue in case.topology.queues.values():
        if dies(queue) and (exchange := queue.dead_letter_exchange) is not None:
            yield queue, exchange


def dies(queue: Queue) -> bool:
    """Whether letters die in it the way we know: not in streams, and nothing is sure of plugins' queues."""
    return queue.type in ("classic", "quorum")


def is_temporary(queue: Queue) -> bool:
    """Whether it goes with its consumers anyway; then nobody counts on what it holds."""
    return queue.exclusive or queue.auto_delete


def drops_oldest(queue: Queue) -> bool:
    """Whether a new letter pushes the oldest out. Quorum queues do not know `reject-publish-dlx`."""
    if queue.max_length is None and queue.max_length_bytes is None:
        return False
    return queue.overflow == "drop-head" or (
        queue.type == "quorum" and queue.overflow == "reject-publish-dlx"
    )


def deaths_by_itself(queue: Queue, version: str) -> tuple[str, ...]:
    """The reasons by which letters die there although nobody rejected them."""
    if not dies(queue):
        return ()
    overflows = queue.max_length is not None or queue.max_length_bytes is not None
    reasons = (
        (DELIVERY_LIMIT, queue.delivery_limit(version) is not None),
        (EXPIRED, queue.ttl_ms is not None),
        (MAXLEN, overflows and queue.overflow != "reject-publish"),
    )
    return tuple(reason for reason, holds in reasons if holds)


def usual_death(queue: Queue) -> str:
    """The reason most letters of a queue have: in one with a TTL they wait for it."""
    return REJECTED if queue.ttl_ms is None else EXPIRED


def fates(case: Case, queue: Queue) -> tuple[Reach, ...]:
    """What becomes of letters that die there, one answer per key they may have.

    Also of those that come back from another queue with that one's dead-letter key: they die with it again,
    and a binding made for the publishers' keys does not take them.
    """
    found = {reach.keys: reach for reach in case.router.fates(queue)}
    exchange = queue.dead_letter_exchange
    if exchange is not None and queue.dead_letter_key is None:
        for source in case.dying_into.get(queue.name, ()):
            if (key := source.dead_letter_key) is not None:
                found.setdefault(Keys(key), case.router.route(exchange, Keys(key)))
    return tuple(found.values())


def reaches_nothing(reach: Reach) -> bool:
    return not reach.queues and not reach.complete


def is_sure(case: Case, reach: Reach) -> bool:
    """Whether what a reach says is certain. A headers exchange without bindings surely takes nothing."""
    if reach.certain:
        return True
    exchange = case.topology.exchanges[reach.exchange]
    return exchange.type == "headers" and not case.router.bindings_from(reach.exchange)


def holds_failures(case: Case, queue: Queue) -> bool:
    """Whether what lies there has failed already, so that nothing else may hold it.

    Applications publish to dead-letter queues themselves, and then only the name tells.
    """
    return case.is_dlq(queue) or _HOLDS_FAILURES.search(queue.name) is not None
