"""Deadletter: makes failed RabbitMQ messages come back, without losing or multiplying one.

What an application imports is here; each name is loaded when it is first used, so that the command `dlq` does
not pay for the library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deadletter.consumer.app import Consumer as Consumer
    from deadletter.consumer.app import DepthAlert as DepthAlert
    from deadletter.consumer.backoffs import exponential as exponential
    from deadletter.consumer.backoffs import fixed as fixed
    from deadletter.consumer.backoffs import linear as linear
    from deadletter.consumer.backoffs import own as own
    from deadletter.consumer.consumer_metrics import ConsumerMetrics as ConsumerMetrics
    from deadletter.consumer.events import Event as Event
    from deadletter.consumer.events import Fate as Fate
    from deadletter.consumer.events import Handled as Handled
    from deadletter.consumer.idempotency import Ids as Ids
    from deadletter.consumer.idempotency import MemoryIds as MemoryIds
    from deadletter.consumer.idempotency import Transaction as Transaction
    from deadletter.consumer.log_events import log_events as log_events
    from deadletter.consumer.message import Message as Message
    from deadletter.consumer.outcomes import BatchFailed as BatchFailed
    from deadletter.consumer.outcomes import Discard as Discard
    from deadletter.consumer.outcomes import HandlerTimeout as HandlerTimeout
    from deadletter.consumer.outcomes import Park as Park
    from deadletter.consumer.outcomes import RetryLater as RetryLater
    from deadletter.consumer.outcomes import discard as discard
    from deadletter.consumer.outcomes import park as park
    from deadletter.consumer.outcomes import retry as retry
    from deadletter.consumer.store_ids import StoreIds as StoreIds

__version__ = "0.1.0"

_HOMES: Final = {
    "BatchFailed": "outcomes",
    "Consumer": "app",
    "ConsumerMetrics": "consumer_metrics",
    "DepthAlert": "app",
    "Discard": "outcomes",
    "Event": "events",
    "Fate": "events",
    "Handled": "events",
    "HandlerTimeout": "outcomes",
    "Ids": "idempotency",
    "MemoryIds": "idempotency",
    "Message": "message",
    "Park": "outcomes",
    "RetryLater": "outcomes",
    "StoreIds": "store_ids",
    "Transaction": "idempotency",
    "discard": "outcomes",
    "exponential": "backoffs",
    "fixed": "backoffs",
    "linear": "backoffs",
    "log_events": "log_events",
    "own": "backoffs",
    "park": "outcomes",
    "retry": "outcomes",
}
__all__ = [
    "BatchFailed",
    "Consumer",
    "ConsumerMetrics",
    "DepthAlert",
    "Discard",
    "Event",
    "Fate",
    "Handled",
    "HandlerTimeout",
    "Ids",
    "MemoryIds",
    "Message",
    "Park",
    "RetryLater",
    "StoreIds",
    "Transaction",
    "__version__",
    "discard",
    "exponential",
    "fixed",
    "linear",
    "log_events",
    "own",
    "park",
    "retry",
]

if not TYPE_CHECKING:  # a checker would take every name that is not there for one of any type

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.consumer.{_HOMES[name]}"), name)
