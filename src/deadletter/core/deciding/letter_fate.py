"""What became of letters of one kind, as it is counted, logged and told.

Whoever tells it (the service's facts and metrics, the consumer's facts, the desk) uses `Step`. Which step may
follow which: `docs/design/states.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What became of a letter."""

    DIED = "died"
    """Rejected, expired, dropped by a length limit, or delivered too often."""
    DELAYED = "delayed"
    """It waits, then goes back."""
    EXPIRED = "delay over"
    RELEASED = "released"
    """Back in its origin."""
    HELD = "held"
    """It was due, and a guard keeps it in the broker until its origin can take it."""
    PARKED = "parked"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    """A copy that a shared fanout made of a letter that goes on elsewhere."""
    LEFT = "left"
    """Still where it was, on purpose."""
    FAILED = "failed"
    """Still where it was, although it should have gone."""
    DONE = "done"
    SKIPPED = "skipped"
    """Done before, as its id says; acked without running the handler."""
    MOVED = "moved"
    """By hand, to whatever queue was named."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LetterFate:
    """What became of letters of one kind; many letters share one, and it is compared by identity."""

    step: Step
    source: str
    """The queue it was taken from."""
    origin: str = ""
    """Empty where it is not known."""
    policy: str = ""
    reason: str = ""
    """Why it died: rejected, expired, maxlen, delivery_limit."""
    cause: str = ""
    """Why this became of it: a `core.letter.parking.Cause`, or the gate that keeps it."""
    delay_ms: int | None = None
    attempt: int | None = None
    gate: str = ""
    """HELD or LEFT, because this gate keeps it."""
