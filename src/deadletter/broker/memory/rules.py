"""How one queue behaves: its arguments and the policy on it, as one value; and what a broker refuses.

Where both say something, an argument wins over the policy for names (the dead-letter exchange and key), and
for numbers the lower one counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deadletter.broker.memory.traits import Traits
from deadletter.core.table import Value
from deadletter.errors import ChannelClosed, UsageError, channel_closed, connection_closed

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"

_NUMBERS: Final = (
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
)
_COMPARED: Final = (
    *_NUMBERS,
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-overflow",
    "x-delivery-limit",
    "x-single-active-consumer",
    "x-delayed-retry-type",
)
_CLASSIC_ONLY: Final = ("x-max-priority",)
_QUORUM_ONLY: Final = ("x-delivery-limit", "x-dead-letter-strategy")
_RETRY: Final = ("x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max")
_UNPLAYED: Final = ("x-expires", "x-single-active-consumer")
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")


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
        about = {"all", kind} if kind == "exchanges" else {"all", "queues", f"{kind}_queues"}
        return self.apply_to in about and re.search(self.pattern, name) is not None


def policy_for(policies: Mapping[str, Policy], name: str, kind: str) -> Mapping[str, Value]:
    """The definition of the one policy that counts: the highest priority."""
    about = [policy for policy in policies.values() if policy.takes(name, kind)]
    return max(about, key=lambda policy: policy.priority).definition if about else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a queue behaves."""

    ttl_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    at_least_once: bool = False
    delivery_limit: int | None = None
    max_priority: int | None = None
    retry_type: str = "disabled"
    retry_min_ms: int = 0
    retry_max_ms: int | None = None

    def retry_delay_ms(self, count: int, *, failed: bool) -> int:
        """How long a message given back waits, by 4.3's delayed retries; 0 is not at all."""
        if self.retry_type == "all" or self.retry_type == ("failed" if failed else "returned"):
            delay_ms = self.retry_min_ms * max(1, count)
            # Without a most the delay does not grow.
            return self.retry_min_ms if self.retry_max_ms is None else min(delay_ms, self.retry_max_ms)
        return 0


def rules_of(arguments: Mapping[str, Value], policy: Mapping[str, Value], traits: Traits, kind: str) -> Rules:
    """What arguments and policy make of a queue."""

    def text(name: str) -> str | None:
        value = arguments.get(f"x-{name}", policy.get(name))
        return value if isinstance(value, str) else None

    def lower(name: str) -> int | None:
        return min(_numbers(arguments.get(f"x-{name}"), policy.get(name)), default=None)

    quorum = kind == QUORUM
    native = quorum and traits.native_retry
    exchange = text("dead-letter-exchange")
    overflow = text("overflow") or "drop-head"
    return Rules(
        ttl_ms=lower("message-ttl"),
        max_length=lower("max-length"),
        max_bytes=lower("max-length-bytes"),
        overflow=overflow,
        dead_letter_exchange=exchange,
        dead_letter_key=text("dead-letter-routing-key") if exchange is not None else None,
        # Without reject-publish the broker quietly goes back to at most once.
        at_least_once=quorum
        and exchange is not None
        and overflow == "reject-publish"
        and text("dead-letter-strategy") == "at-least-once",
        delivery_limit=_delivery_limit(arguments, policy, traits) if quorum else None,
        max_priority=None if quorum else lower("max-priority"),
        retry_type=(text("delayed-retry-type") or "disabled") if native else "disabled",
        retry_min_ms=(lower("delayed-retry-min") or 0) if native else 0,
        retry_max_ms=lower("delayed-retry-max") if native else None,
    )


def _delivery_limit(
    arguments: Mapping[str, Value], policy: Mapping[str, Value], traits: Traits
) -> int | None:
    given = _numbers(arguments.get("x-delivery-limit"), policy.get("delivery-limit"))
    if not given:
        return traits.default_delivery_limit
    if traits.unlimited_by_minus_one:
        limit = max(given) if min(given) < 0 else min(given)
        return None if limit < 0 else limit
    return min(given)


def _numbers(*values: Value) -> list[int]:
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]


def check_policy(policy: Policy) -> None:
    try:
        re.compile(policy.pattern)
    except re.error as error:
        raise UsageError(
            f"policy {policy.name!r}: the pattern {policy.pattern!r} is no regular expression"
        ) from error


# -- refusals -----------------------------------------------------------------------------------------------
def precondition_failed(text: str) -> ChannelClosed:
    return channel_closed(406, f"PRECONDITION_FAILED - {text}")


def check_queue(
    where: str,
    arguments: Mapping[str, Value],
    traits: Traits,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> str:
    """The queue's type; raises what a broker answers to a declaration it does not accept. `where` names
    the queue in its words."""
    kind = arguments.get("x-queue-type", CLASSIC)
    if unplayed := [name for name in _UNPLAYED if arguments.get(name)] + ["streams"] * (kind == "stream"):
        # To take it and ignore it would make a test pass that fails on a real broker.
        raise connection_closed(
            540, f"NOT_IMPLEMENTED - the memory broker does not play {unplayed[0]} ({where})"
        )
    if kind not in (CLASSIC, QUORUM):
        raise precondition_failed(
            f"invalid arg 'x-queue-type' for {where}: \"unsupported queue type '{kind}'\""
        )
    if kind == QUORUM:
        for given, name in (
            (exclusive, "exclusive-owner"),
            (auto_delete, "auto-delete"),
            (not durable, "durable"),
        ):
            if given:
                raise precondition_failed(f"invalid property '{name}' for {where}")
    foreign = _CLASSIC_ONLY if kind == QUORUM else _QUORUM_ONLY + (_RETRY if traits.native_retry else ())
    for name in foreign:
        if name in arguments:
            raise precondition_failed(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    for name in _NUMBERS:
        value = arguments.get(name)
        if name in arguments and (name not in _RETRY or traits.native_retry):
            if not isinstance(value, int) or isinstance(value, bool):
                raise precondition_failed(
                    f"invalid arg '{name}' for {where}: \"expected integer, got {value!r}\""
                )
            if value < 0:
                raise precondition_failed(f"invalid arg '{name}' for {where}: {{value_negative,{value}}}")
    if arguments.get("x-overflow", "drop-head") not in _OVERFLOWS:
        raise precondition_failed(f"invalid arg 'x-overflow' for {where}: invalid_overflow")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise precondition_failed(
            f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined"
        )
    return str(kind)


def check_same(where: str, name: str, received: object, current: object) -> None:
    """Raises what a broker answers when something is declared again and differs."""
    if received != current:
        raise precondition_failed(
            f"inequivalent arg '{name}' for {where}: "
            f"received '{_erl(received)}' but current is '{_erl(current)}'"
        )


def check_same_arguments(where: str, received: Mapping[str, Value], current: Mapping[str, Value]) -> None:
    check_same(
        where, "x-queue-type", received.get("x-queue-type", CLASSIC), current.get("x-queue-type", CLASSIC)
    )
    for name in _COMPARED:
        if received.get(name) != current.get(name):
            raise precondition_failed(
                f"inequivalent arg '{name}' for {where}: received {_told(received.get(name))} "
                f"but current is {_told(current.get(name))}"
            )


def _erl(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(value: Value) -> str:
    if value is None:
        return "none"
    kind = {str: "longstr", int: "long", bool: "bool"}.get(type(value), type(value).__name__)
    return f"the value '{_erl(value)}' of type '{kind}'"
