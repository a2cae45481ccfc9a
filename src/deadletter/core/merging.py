"""Arguments, policies and operator policies: what of them holds in the end, as RabbitMQ computes it.

One user policy and one operator policy apply to a queue or exchange: of those whose pattern matches its name
and whose kind fits, the one with the highest priority. Where both name a key, limits (lengths, times, the
delivery limit) take the smaller value and everything else the operator's. Where the declaration names a key
too, limits again take the smaller value and everything else the declaration's: a dead-letter exchange
frozen into a queue cannot be changed by a policy any more.

Compared with what real brokers compute in `tests/broker/test_topology.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from deadletter.core.table import Value

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

    def fits(self, name: str, kind: str) -> bool:
        """Whether it is meant for this name; `kind` is "exchange" or a queue type."""
        return kind in _FITS.get(self.apply_to, frozenset()) and _matches(self.pattern, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What applies to one name."""

    policy: str | None = None
    operator_policy: str | None = None
    definition: Mapping[str, Value] = field(default_factory=dict)


class Chooser:
    """Which policies apply to a name. Sorted once: ten thousand queues ask."""

    def __init__(self, policies: Iterable[BrokerPolicy]) -> None:
        # By name among equal priorities: RabbitMQ promises no order there, and we want the same one twice.
        self.policies: list[BrokerPolicy] = sorted(
            policies, key=lambda policy: (-policy.priority, policy.name)
        )
        self._users = [policy for policy in self.policies if not policy.operator]
        self._operators = [policy for policy in self.policies if policy.operator]

    def choose(self, name: str, kind: str) -> Chosen:
        user = next((policy for policy in self._users if policy.fits(name, kind)), None)
        operator = next((policy for policy in self._operators if policy.fits(name, kind)), None)
        definition = dict(user.definition) if user is not None else {}
        for key, value in (operator.definition if operator is not None else {}).items():
            definition[key] = _of_both(key, value, definition[key]) if key in definition else value
        return Chosen(
            policy=user.name if user is not None else None,
            operator_policy=operator.name if operator is not None else None,
            definition=definition,
        )

    def definition(self, name: str, kind: str) -> Mapping[str, Value]:
        return self.choose(name, kind).definition


def effective(arguments: Mapping[str, Value], definition: Mapping[str, Value]) -> dict[str, Value]:
    """What holds of a declaration's arguments and a policy's definition, by policy name."""
    merged = dict(definition)
    for argument, own in arguments.items():
        key = argument.removeprefix("x-")
        merged[key] = _of_both(key, own, merged[key]) if key in merged else own
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
