"""Policies: which holds for a queue or an exchange (`core.topology.merging`), and which are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.errors import UsageError

EXCHANGE: Final = "exchange"

_PLAYED: Final = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "overflow",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "alternate-exchange",
    }
)
_WITHOUT_EFFECT_HERE: Final = frozenset(
    {
        "queue-mode",
        "queue-version",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "max-age",
        "stream-max-segment-size-bytes",
        "initial-cluster-size",
        "target-group-size",
        "queue-leader-locator",
        "queue-master-locator",
    }
)
"""About disks and clusters, and streams: they change nothing a client of these queues could see, but which
policy counts."""
_RETRY: Final = frozenset({"delayed-retry-type", "delayed-retry-min", "delayed-retry-max"})


def policy_for(
    policies: Mapping[str, BrokerPolicy], name: str, kind: str, traits: Traits
) -> Mapping[str, Value]:
    """The definition of the one policy that counts; empty when none does. `kind`: a queue type, or
    `exchange`."""
    about = [policy for policy in policies.values() if policy.fits(name, kind, traits.version)]
    return max(about, key=lambda policy: policy.priority).definition if about else {}


def check_policy(policy: BrokerPolicy, traits: Traits) -> None:
    """Raises UsageError for what a broker refuses, or the memory broker does not play."""
    try:
        re.compile(policy.pattern)
    except re.error as error:
        raise UsageError(
            f"policy {policy.name!r}: the pattern {policy.pattern!r} is no regular expression"
        ) from error
    known = _PLAYED | _WITHOUT_EFFECT_HERE | (_RETRY if traits.native_retry else frozenset())
    if strange := sorted(policy.definition.keys() - known):
        raise UsageError(
            f"policy {policy.name!r}: {', '.join(strange)}: RabbitMQ {traits.version} does not know it, or "
            f"the memory broker does not play it; expected some of {', '.join(sorted(known))}"
        )
