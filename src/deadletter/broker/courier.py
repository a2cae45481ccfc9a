"""`deadletter.move.courier` by the names it had first; nothing of ours imports it."""

from __future__ import annotations

from deadletter.move.courier import (
    Bounds,
    Courier,
    Deaths,
    Ended,
    Judging,
    Leave,
    Letter,
    Progress,
    Send,
    Terms,
    Verdict,
    move,
)
from deadletter.move.courier import BrokerBlocked as Blocked
from deadletter.move.courier import MoveEvent as Event
from deadletter.move.courier import MoveFailure as Failure
from deadletter.move.courier import MoveTally as Tally

__all__ = [
    "Blocked", "Bounds", "Courier", "Deaths", "Ended", "Event", "Failure", "Judging", "Leave", "Letter",
    "Progress", "Send", "Tally", "Terms", "Verdict", "move",
]  # fmt: skip
