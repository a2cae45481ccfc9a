"""One step of letters of one kind, as it is counted, logged and told."""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.deciding.states import Step


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
