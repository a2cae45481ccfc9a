"""Every name and header of ours on the broker.

Queues and exchanges of ours begin with `deadletter.`, headers with `deadletter-`. Whoever meets such a
queue in a death knows that the letter was in our hands; whoever meets such a header does not know it,
because applications copy headers from one message to the next. That asymmetry is why the origin of a
letter is read from the deaths first and from our headers only where the two agree.
"""

from __future__ import annotations

from typing import Final

QUEUE_PREFIX: Final = "deadletter."

ID: Final = "deadletter-id"
PARENT_ID: Final = "deadletter-parent-id"
ATTEMPT: Final = "deadletter-attempt"
ORIGIN_QUEUE: Final = "deadletter-origin-queue"
ORIGIN_EXCHANGE: Final = "deadletter-origin-exchange"
ORIGIN_ROUTING_KEY: Final = "deadletter-origin-routing-key"
DEATHS: Final = "deadletter-deaths"

ERROR_TYPE: Final = "deadletter-error-type"
ERROR_MESSAGE: Final = "deadletter-error-message"
ERROR_STACK: Final = "deadletter-error-stack"
ERROR_HOST: Final = "deadletter-error-host"
ERROR_AT: Final = "deadletter-error-at"


def is_ours(name: str) -> bool:
    """Whether a queue or exchange belongs to Deadletter."""
    return name.startswith(QUEUE_PREFIX)
