"""RabbitMQ's versions, and what each of them does.

A broker tells its version as a text. It is read here and nowhere else, and what hangs on it has a name here:
`traits_of(text).nack_counts` says more than a comparison with 4.3, and a version that changes its mind is
one line. Each line was measured on real brokers (3.10.8, 4.0.5, 4.3.6) or is from the documentation where it
says so. The memory broker plays the same value: what we believe of a version, our tests see.

Of a version that nobody told, `traits_of` says what an old one does; `is_known` is for those who must not
guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from deadletter.core.topology.queue_arguments import (
    X_CONSUMER_TIMEOUT,
    X_MAX_PRIORITY,
    X_QUEUE_LEADER_LOCATOR,
    X_QUEUE_VERSION,
    X_QUORUM_INITIAL_GROUP_SIZE,
    as_argument,
)

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_MIB: Final = 1024 * 1024

DEFAULT_LIMIT: Final = 20
"""The delivery limit of a quorum queue from RabbitMQ 4.0 on, where nobody set another."""


class Version(NamedTuple):
    """A version as numbers: it is compared as one."""

    major: int
    minor: int
    patch: int = 0


UNKNOWN: Final = Version(0, 0)
OLDEST: Final = Version(3, 10)
"""The first with at-least-once dead-lettering, on which every delay of ours rests."""
FOUR: Final = Version(4, 0)
FOUR_THREE: Final = Version(4, 3)
RETRY_POLICIES: Final = Version(4, 3, 1)
"""The first that takes delayed retries as policy keys; 4.3.0 takes them as arguments only (documentation)."""


def version_of(text: str) -> Version:
    """The version a text begins with, as in `4.3.6` or `4.0.5-rc.1`; UNKNOWN where it is none."""
    found = _VERSION.match(text)
    return Version(int(found[1]), int(found[2]), int(found[3] or 0)) if found else UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a broker of one version does, where versions differ."""

    version: str
    """As it was told."""
    number: Version

    # -- delivery limits and counts
    default_delivery_limit: int | None
    """Of a quorum queue that was given none."""
    unlimited_by_minus_one: bool
    """A delivery limit below 0 means none; before, it means that the first return is the last."""
    nack_counts: bool
    """A nack with requeue costs a delivery on quorum queues; any other return always does."""
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
    delivered_survives_death: bool
    """A message once delivered is marked redelivered in the next queue too."""

    # -- deaths and headers
    at_least_once: bool
    """Quorum queues can dead-letter at least once."""
    believes_clients: bool
    """`x-death` in a publish is taken for what this broker wrote itself."""
    last_death: bool
    """`x-last-death-*` are written beside `x-first-death-*`."""
    keeps_cc: bool
    """`CC` stays on a letter that died through a dead-letter routing key."""
    sorts_headers: bool
    """Headers are sorted by name on every delivery, not only where the broker added some."""

    # -- delayed retries
    native_retry: bool
    """Quorum queues have `x-delayed-retry-*`; an older broker takes the arguments and ignores them."""
    native_retry_policies: bool
    """… and the keys of policies; an older broker refuses the policy."""

    # -- arguments and policies
    foreign_to_classic: frozenset[str]
    """Arguments that a classic queue refuses."""
    foreign_to_quorum: frozenset[str]
    void_on_classic: frozenset[str]
    """Keys that make a policy void on a classic queue, beside those that do in every version."""
    checks_queue_mode: bool
    queue_versions: frozenset[int]
    no_master_locator: bool
    """`x-queue-master-locator` ends the connection."""

    # -- the rest
    active_by_priority: bool
    """A single active consumer of a quorum queue is the one of the highest priority."""
    topic_wildcards_max: int | None
    """How many `#` a topic binding may have."""
    unknown_exchange_type_ends_connection: bool
    keeps_transient_exchanges: bool
    """Exchanges that are not durable survive a restart all the same."""
    body_max_bytes: int
    new_admin_tool: bool
    """`rabbitmqadmin` is the second one of that name, which spells options otherwise."""

    @property
    def is_known(self) -> bool:
        """Whether anybody told the version; else this is what an old one does."""
        return self.number != UNKNOWN

    @property
    def limits_deliveries(self) -> bool:
        """Whether a quorum queue has a delivery limit that nobody asked for."""
        return self.default_delivery_limit is not None


_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes"})
_QUORUM: Final = frozenset({"delivery-limit", "dead-letter-strategy"})
_IN_MEMORY: Final = frozenset({"max-in-memory-length", "max-in-memory-bytes"})
_CLASSIC: Final = frozenset({"queue-mode", "queue-master-locator"})
_RETRIES: Final = frozenset({"delayed-retry-type", "delayed-retry-min", "delayed-retry-max"})


def _arguments(keys: Iterable[str], *more: str) -> frozenset[str]:
    return frozenset({as_argument(key) for key in keys} | set(more))


@lru_cache(maxsize=64)
def traits_of(text: str) -> Traits:
    """What the broker that tells this version does; versions between behave like the older one."""
    number = version_of(text)
    four = number >= FOUR
    newest = number >= FOUR_THREE
    return Traits(
        version=text,
        number=number,
        default_delivery_limit=DEFAULT_LIMIT if four else None,
        unlimited_by_minus_one=four,
        nack_counts=not newest,
        acquired_count=newest,
        first_count_shown=not four,
        returns_go_last=not four,
        counts_survive_death=four,
        counts_go_on=newest,
        delivered_survives_death=newest,
        at_least_once=number >= OLDEST,
        believes_clients=not four,
        last_death=four,
        keeps_cc=four,
        sorts_headers=four,
        native_retry=newest,
        native_retry_policies=number >= RETRY_POLICIES,
        foreign_to_classic=_arguments(
            _STREAMS | _QUORUM | _IN_MEMORY | (_RETRIES if newest else frozenset()),
            X_QUORUM_INITIAL_GROUP_SIZE,
            *(() if four else (X_QUEUE_LEADER_LOCATOR,)),
            *((X_CONSUMER_TIMEOUT,) if newest else ()),
        ),
        foreign_to_quorum=_arguments(_STREAMS | _CLASSIC, X_MAX_PRIORITY, X_QUEUE_VERSION),
        void_on_classic=_IN_MEMORY if four else frozenset({"queue-leader-locator"}),
        checks_queue_mode=not newest,
        queue_versions=frozenset({2} if newest else {1, 2}),
        no_master_locator=newest,
        active_by_priority=four,
        topic_wildcards_max=2 if newest else None,
        unknown_exchange_type_ends_connection=not four,
        keeps_transient_exchanges=newest,
        body_max_bytes=16 * _MIB if four else 128 * _MIB,
        new_admin_tool=newest,
    )
