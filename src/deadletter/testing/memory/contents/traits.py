"""What differs between RabbitMQ versions, as one value: each line was measured on real brokers.

The contract suite runs the same tests on this broker and on the real one of the same version; where they
disagree, this file (or whoever reads it) is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from deadletter.core.topology.queue_arguments import (
    X_CONSUMER_TIMEOUT,
    X_MAX_PRIORITY,
    X_QUEUE_LEADER_LOCATOR,
    X_QUEUE_VERSION,
    X_QUORUM_INITIAL_GROUP_SIZE,
    as_argument,
)
from deadletter.errors import UsageError

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a broker of one version behaves, where versions differ."""

    version: str
    default_delivery_limit: int | None
    """Of a quorum queue that was given none."""
    unlimited_by_minus_one: bool
    """A delivery limit below 0 means none; before, it means that the first return is the last."""
    nack_counts: bool
    """A nack with requeue costs a delivery on quorum queues."""
    acquired_count: bool
    """Quorum queues count deliveries and failures apart, and show both."""
    first_count_shown: bool
    """Quorum queues write `x-delivery-count: 0` on the first delivery."""
    returns_go_last: bool
    """What is given back to a quorum queue without a delivery limit goes to its end."""
    counts_survive_death: bool
    """Delivery counts of quorum queues go on in the next one after a death."""
    counts_go_on: bool
    """… and there they count against its limit: a letter may come with none left."""
    active_by_priority: bool
    """A single active consumer of a quorum queue is the one of the highest priority."""
    topic_wildcards_max: int | None
    """How many `#` a topic binding may have."""
    delivered_survives_death: bool
    """A message once delivered is marked redelivered in the next queue too."""
    believes_clients: bool
    """`x-death` in a publish is taken for what this broker wrote itself."""
    last_death: bool
    """`x-last-death-*` are written beside `x-first-death-*`."""
    keeps_cc: bool
    """`CC` stays on a letter that died through a dead-letter routing key."""
    sorts_headers: bool
    """Headers are sorted by name on every delivery, not only where the broker added some."""
    unknown_exchange_type_ends_connection: bool
    keeps_transient_exchanges: bool
    """Exchanges that are not durable survive a restart all the same."""
    native_retry: bool
    """Quorum queues have `x-delayed-retry-*`."""
    foreign_to_classic: frozenset[str]
    """Arguments that a classic queue refuses."""
    foreign_to_quorum: frozenset[str]
    checks_queue_mode: bool
    queue_versions: frozenset[int]
    no_master_locator: bool
    """`x-queue-master-locator` ends the connection."""
    body_max_bytes: int


_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes"})
_QUORUM: Final = frozenset({"delivery-limit", "dead-letter-strategy"})
_IN_MEMORY: Final = frozenset({"max-in-memory-length", "max-in-memory-bytes"})
_CLASSIC: Final = frozenset({"queue-mode", "queue-master-locator"})
_RETRIES: Final = frozenset({"delayed-retry-type", "delayed-retry-min", "delayed-retry-max"})


def _arguments(keys: frozenset[str], *more: str) -> frozenset[str]:
    return frozenset({as_argument(key) for key in keys} | set(more))


def traits_of(version: str) -> Traits:
    """The traits of `3.10`, `4.0.5`, `4.3.6` and the like; versions between behave like the older one."""
    found = _VERSION.fullmatch(version)
    if found is None or not (3, 10) <= (number := (int(found[1]), int(found[2]))) < (5, 0):
        raise UsageError(f"expected a RabbitMQ version from 3.10 to 4.x, such as 4.3.6, got {version!r}")
    four = number >= (4, 0)
    newest = number >= (4, 3)
    return Traits(
        version=version if found[3] else f"{version}.0",
        default_delivery_limit=20 if four else None,
        unlimited_by_minus_one=four,
        nack_counts=not newest,
        acquired_count=newest,
        first_count_shown=not four,
        returns_go_last=not four,
        counts_survive_death=four,
        counts_go_on=newest,
        active_by_priority=four,
        topic_wildcards_max=2 if newest else None,
        delivered_survives_death=newest,
        believes_clients=not four,
        last_death=four,
        keeps_cc=four,
        sorts_headers=four,
        unknown_exchange_type_ends_connection=not four,
        keeps_transient_exchanges=newest,
        native_retry=newest,
        foreign_to_classic=_arguments(
            _STREAMS | _QUORUM | _IN_MEMORY | (_RETRIES if newest else frozenset()),
            X_QUORUM_INITIAL_GROUP_SIZE,
            *(() if four else (X_QUEUE_LEADER_LOCATOR,)),
            *((X_CONSUMER_TIMEOUT,) if newest else ()),
        ),
        foreign_to_quorum=_arguments(_STREAMS | _CLASSIC, X_MAX_PRIORITY, X_QUEUE_VERSION),
        checks_queue_mode=not newest,
        queue_versions=frozenset({2} if newest else {1, 2}),
        no_master_locator=newest,
        body_max_bytes=16 * _MIB if four else 128 * _MIB,
    )
