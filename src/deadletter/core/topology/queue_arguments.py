"""The arguments of a queue, by the names RabbitMQ gives them.

A policy sets the same things under the same names without the `x-`; who has the one name makes the other
with `as_argument` and `as_policy_key`.
"""

from __future__ import annotations

from typing import Final

_MARK: Final = "x-"

X_QUEUE_TYPE: Final = "x-queue-type"
X_DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
X_DEAD_LETTER_ROUTING_KEY: Final = "x-dead-letter-routing-key"
X_DEAD_LETTER_STRATEGY: Final = "x-dead-letter-strategy"
X_DELIVERY_LIMIT: Final = "x-delivery-limit"
X_MESSAGE_TTL: Final = "x-message-ttl"
X_EXPIRES: Final = "x-expires"
X_MAX_LENGTH: Final = "x-max-length"
X_MAX_LENGTH_BYTES: Final = "x-max-length-bytes"
X_MAX_PRIORITY: Final = "x-max-priority"
X_OVERFLOW: Final = "x-overflow"
X_SINGLE_ACTIVE_CONSUMER: Final = "x-single-active-consumer"
X_CONSUMER_TIMEOUT: Final = "x-consumer-timeout"

X_DELAYED_RETRY: Final = "x-delayed-retry-"
"""What the arguments of RabbitMQ 4.3's own retries begin with."""
X_DELAYED_RETRY_TYPE: Final = "x-delayed-retry-type"
X_DELAYED_RETRY_MIN: Final = "x-delayed-retry-min"
X_DELAYED_RETRY_MAX: Final = "x-delayed-retry-max"

X_QUEUE_LEADER_LOCATOR: Final = "x-queue-leader-locator"
X_QUEUE_MASTER_LOCATOR: Final = "x-queue-master-locator"
X_QUORUM_INITIAL_GROUP_SIZE: Final = "x-quorum-initial-group-size"
X_QUEUE_MODE: Final = "x-queue-mode"
X_QUEUE_VERSION: Final = "x-queue-version"


def as_argument(policy_key: str) -> str:
    """The argument that sets what this key of a policy sets."""
    return f"{_MARK}{policy_key}"


def as_policy_key(argument: str) -> str:
    """The key of a policy that sets what this argument sets."""
    return argument.removeprefix(_MARK)
