"""Deadletter: makes failed RabbitMQ messages come back, without losing or multiplying one.

What an application imports is here; each name is loaded when it is first used, so that the command `dlq` does
not pay for the library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deadletter.consumer.app import Consumer, DepthAlert
    from deadletter.consumer.backoffs import exponential, fixed, linear, own
    from deadletter.consumer.consumer_metrics import ConsumerMetrics
    from deadletter.consumer.events import Event, Fate, Handled
    from deadletter.consumer.handlers.dependencies import Depends
    from deadletter.consumer.handlers.middleware import Proceed
    from deadletter.consumer.idempotency import Ids, MemoryIds, Transaction
    from deadletter.consumer.log_events import log_events
    from deadletter.consumer.message import Message
    from deadletter.consumer.outcomes import (
        BatchFailed,
        Discard,
        HandlerTimeout,
        Park,
        RetryLater,
        discard,
        park,
        retry,
    )
    from deadletter.consumer.store_ids import StoreIds

__version__ = "0.1.0"

_IN_CONSUMER: Final = {
    "app": ("Consumer", "DepthAlert"),
    "backoffs": ("exponential", "fixed", "linear", "own"),
    "consumer_metrics": ("ConsumerMetrics",),
    "events": ("Event", "Fate", "Handled"),
    "handlers.dependencies": ("Depends",),
    "handlers.middleware": ("Proceed",),
    "idempotency": ("Ids", "MemoryIds", "Transaction"),
    "log_events": ("log_events",),
    "message": ("Message",),
    "outcomes": (
        "BatchFailed",
        "Discard",
        "HandlerTimeout",
        "Park",
        "RetryLater",
        "discard",
        "park",
        "retry",
    ),
    "store_ids": ("StoreIds",),
}
_HOMES: Final = {name: home for home, names in _IN_CONSUMER.items() for name in names}
__all__ = [
    "BatchFailed",
    "Consumer",
    "ConsumerMetrics",
    "Depends",
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
    "Proceed",
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
