"""Arguments, policies and operator policies: what of them holds in the end, as RabbitMQ computes it.

One user policy and one operator policy apply to a queue or exchange: of those whose pattern matches its name
and whose kind fits, the one with the highest priority. Where both name a key, limits (lengths, times, the
delivery limit) take the smaller value and everything else the operator's. Where the declaration names a key
too, limits again take the smaller value and everything else the declaration's: a dead-letter exchange
frozen into a queue cannot be changed by a policy any more. One exception: on a quorum queue a policy's
`overflow` holds against the declaration's.

A policy with one key that the queue's type does not take has no effect on that queue at all: none of its
other keys holds, and the next policy that matches applies in its place.

Compared with what real brokers compute in `tests/broker/broker/test_live_topology.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.queue_arguments import as_policy_key
from deadletter.core.topology.rabbitmq_versions import traits_of

LIMITS: Final = frozenset({"message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"})
"""Keys of which the smaller value holds."""

_FITS: Final[Mapping[str, frozenset[str]]] = {
    "all": frozenset({"exchange", "classic", "quorum", "stream"}),
    "exchanges": frozenset({"exchange"}),
    "queues": frozenset({"classic", "quorum", "stream"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
}

_STREAM_ONLY: Final = frozenset({"initial-cluster-size", "max-age", "stream-max-segment-size-bytes"})
_MIRRORING: Final = frozenset(
    {"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown"}
    | {"ha-promote-on-failure", "queue-master-locator", "queue-mode"}
)
_VOID: Final[Mapping[str, frozenset[str]]] = {
    "classic": _STREAM_ONLY | {"delivery-limit", "dead-letter-strategy", "target-group-size"},
    "quorum": _STREAM_ONLY | _MIRRORING,
    "stream": _MIRRORING
    | {"message-ttl", "expires", "max-length", "overflow", "delivery-limit", "target-group-size"}
    | {"dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy"}
    | {"max-in-memory-length", "max-in-memory-bytes"},
}
"""Keys that make a policy void on a queue of this type; measured on 3.10.8, 4.0.5 and 4.3.6."""


def void_keys(kind: str, definition: Iterable[str], version: str = "") -> frozenset[str]:
    """Those of a policy's keys for which a queue of this type takes none of the policy."""
    void = _VOID.get(kind, frozenset[str]())
    if kind == "classic" and version:
        void |= traits_of(version).void_on_classic
    return void.intersection(definition)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPolicy:
    """A policy of RabbitMQ, not one of our retry policies: settings for the names its pattern matches."""

    name: str
    pattern: str
    definition: Mapping[str, Value] = field(default_factory=dict)
    apply_to: str = "all"
    """all, exchanges, queues, classic_queues, quorum_queues, streams."""
    priority: int = 0
    operator: bool = False

    def means(self, name: str, kind: str) -> bool:
        """Whether it is meant for this name; `kind` is "exchange" or a queue type."""
        return kind in _FITS.get(self.apply_to, frozenset()) and _matches(self.pattern, name)

    def fits(self, name: str, kind: str, version: str = "") -> bool:
        """Whether it is meant for this name and would have an effect there."""
        return self.means(name, kind) and not void_keys(kind, self.definition, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What applies to one name."""

    policy: str | None = None
    operator_policy: str | None = None
    definition: Mapping[str, Value] = field(default_factory=dict)


class Chooser:
    """Which policies apply to a name. Sorted once: ten thousand queues ask."""

    def __init__(self, policies: Iterable[BrokerPolicy], version: str = "") -> None:
        self._version = version
        # By name among equal priorities: RabbitMQ promises no order there, and we want the same one twice.
        self.policies: list[BrokerPolicy] = sorted(
            policies, key=lambda policy: (-policy.priority, policy.name)
        )
        self._users = [policy for policy in self.policies if not policy.operator]
        self._operators = [policy for policy in self.policies if policy.operator]

    def choose(self, name: str, kind: str) -> Chosen:
        user = self._first(self._users, name, kind)
        operator = self._first(self._operators, name, kind)
        definition = dict(user.definition) if user is not None else {}
        for key, value in (operator.definition if operator is not None else {}).items():
            definition[key] = _of_both(key, value, definition[key]) if key in definition else value
        return Chosen(
            policy=user.name if user is not None else None,
            operator_policy=operator.name if operator is not None else None,
            definition=definition,
        )

    def without_effect(self, name: str, kind: str, *, operator: bool = False) -> BrokerPolicy | None:
        """The policy that would apply if the queue's type took all of its keys; None where the one that
        applies is the one that is meant."""
        candidates = self._operators if operator else self._users
        meant = next((policy for policy in candidates if policy.means(name, kind)), None)
        return None if meant is None or meant.fits(name, kind, self._version) else meant

    def _first(self, policies: Iterable[BrokerPolicy], name: str, kind: str) -> BrokerPolicy | None:
        return next((policy for policy in policies if policy.fits(name, kind, self._version)), None)

    def definition(self, name: str, kind: str) -> Mapping[str, Value]:
        return self.choose(name, kind).definition


def effective(arguments: Mapping[str, Value], definition: Mapping[str, Value], kind: str) -> dict[str, Value]:
    """What holds of a declaration's arguments and a policy's definition, by policy name."""
    merged = dict(definition)
    for argument, own in arguments.items():
        key = as_policy_key(argument)
        if key not in merged:
            merged[key] = own
        elif not (key == "overflow" and kind == "quorum"):
            merged[key] = _of_both(key, own, merged[key])
    return merged


def _of_both(key: str, winner: Value, other: Value) -> Value:
    """The smaller of two limits; the winner's value of anything else."""
    if key in LIMITS and isinstance(winner, int) and isinstance(other, int):
        if key == "delivery-limit" and min(winner, other) < 0:
            return max(winner, other)  # a negative one means none
        return min(winner, other)
    return winner


def _matches(pattern: str, name: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is not None and compiled.search(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None  # PCRE that Python does not know: better no policy than a wrong one
