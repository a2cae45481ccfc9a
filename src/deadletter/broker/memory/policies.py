"""Policies: which one counts for a queue or an exchange, and which have no effect.

A queue takes one policy, the highest priority that matches its name and has only keys its type takes. One
foreign key makes a policy void for that queue: nothing of it holds there, and the next lower one counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deadletter.broker.memory.rules import QUORUM
from deadletter.broker.memory.traits import Traits
from deadletter.core.table import Value
from deadletter.errors import UsageError

EXCHANGES: Final = "exchanges"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an administrator said about queues and exchanges of some names."""

    name: str
    pattern: str
    definition: Mapping[str, Value]
    priority: int = 0
    apply_to: str = "all"

    def takes(self, name: str, kind: str) -> bool:
        """Whether it is about this object; `kind` is a queue type, or `exchanges`."""
        about = {"all", kind} if kind == EXCHANGES else {"all", "queues", f"{kind}_queues"}
        return self.apply_to in about and re.search(self.pattern, name) is not None

    def has_effect(self, kind: str, traits: Traits) -> bool:
        """Whether a queue of this type takes all its keys."""
        if kind == EXCHANGES:
            return True
        void = traits.void_on_quorum if kind == QUORUM else traits.void_on_classic
        return not void & self.definition.keys()


def policy_for(policies: Mapping[str, Policy], name: str, kind: str, traits: Traits) -> Mapping[str, Value]:
    """The definition of the one policy that counts; empty when none does."""
    about = [p for p in policies.values() if p.takes(name, kind) and p.has_effect(kind, traits)]
    return max(about, key=lambda policy: policy.priority).definition if about else {}


def check_policy(policy: Policy, traits: Traits) -> None:
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
