"""How one queue behaves: its arguments and the policy on it, as one value.

Where both say something, an argument wins over the policy for names (the dead-letter exchange and key), and
for numbers the lower one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.queue_arguments import X_DELIVERY_LIMIT, as_argument
from deadletter.core.topology.rabbitmq_versions import Traits

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBehaviour:
    """How a queue behaves."""

    ttl_ms: int | None = None
    expires_ms: int | None = None
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


def rules_of(
    arguments: Mapping[str, Value], policy: Mapping[str, Value], traits: Traits, kind: str
) -> QueueBehaviour:
    """What arguments and policy make of a queue."""

    def text(name: str) -> str | None:
        value = arguments.get(as_argument(name), policy.get(name))
        return value if isinstance(value, str) else None

    def lower(name: str) -> int | None:
        return min(_numbers(arguments.get(as_argument(name)), policy.get(name)), default=None)

    quorum = kind == QUORUM
    native = quorum and traits.native_retry
    exchange = text("dead-letter-exchange")
    # On a quorum queue the policy's holds, although it is no limit.
    overflow = (policy.get("overflow") if quorum else None) or text("overflow") or "drop-head"
    if quorum and overflow == "reject-publish-dlx":
        overflow = "drop-head"  # taken without a word, and not done
    return QueueBehaviour(
        ttl_ms=lower("message-ttl"),
        expires_ms=lower("expires"),
        max_length=lower("max-length"),
        max_bytes=lower("max-length-bytes"),
        overflow=str(overflow),
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
    given = _numbers(arguments.get(X_DELIVERY_LIMIT), policy.get("delivery-limit"))
    if not given:
        return traits.default_delivery_limit
    if traits.unlimited_by_minus_one:
        limit = max(given) if min(given) < 0 else min(given)
        return None if limit < 0 else limit
    return min(given)


def _numbers(*values: Value) -> list[int]:
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
