"""Deadletter: makes failed RabbitMQ messages come back, without losing or multiplying one.

What an application imports is here; each name is loaded when it is first used, so that the command `dlq` does
not pay for the library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deadletter.consumer.app import Consumer as Consumer
    from deadletter.consumer.backoffs import exponential as exponential
    from deadletter.consumer.backoffs import fixed as fixed
    from deadletter.consumer.backoffs import linear as linear
    from deadletter.consumer.backoffs import own as own
    from deadletter.consumer.message import Message as Message
    from deadletter.consumer.outcomes import Discard as Discard
    from deadletter.consumer.outcomes import Park as Park
    from deadletter.consumer.outcomes import RetryLater as RetryLater
    from deadletter.consumer.outcomes import discard as discard
    from deadletter.consumer.outcomes import park as park
    from deadletter.consumer.outcomes import retry as retry

__version__ = "0.1.0"

_HOMES: Final = {
    "Consumer": "app",
    "Discard": "outcomes",
    "Message": "message",
    "Park": "outcomes",
    "RetryLater": "outcomes",
    "discard": "outcomes",
    "exponential": "backoffs",
    "fixed": "backoffs",
    "linear": "backoffs",
    "own": "backoffs",
    "park": "outcomes",
    "retry": "outcomes",
}
__all__ = [
    "Consumer",
    "Discard",
    "Message",
    "Park",
    "RetryLater",
    "__version__",
    "discard",
    "exponential",
    "fixed",
    "linear",
    "own",
    "park",
    "retry",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.consumer.{_HOMES[name]}"), name)
