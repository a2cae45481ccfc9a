"""Times as people type them, for a search or an option: a span, or a time of day."""

from __future__ import annotations

from deadletter.core.letter.header_values import moment
from deadletter.core.text.durations import duration_ms
from deadletter.errors import UsageError


def past_ms(option: str, said: str, now: int) -> int:
    """`2h` (ago), or a time such as 2025-06-01T12:00, in UTC where it names no zone."""
    try:
        return now - int(duration_ms(said))
    except ValueError:
        return exact_ms(option, said)


def future_ms(option: str, said: str, now: int) -> int:
    try:
        return now + int(duration_ms(said))
    except ValueError:
        return exact_ms(option, said)


def exact_ms(option: str, said: str) -> int:
    at = moment(said)
    if at is None:
        raise UsageError(
            f"{option}: expected a span such as 2h or 3d, or a time such as 2025-06-01T12:00 (UTC), "
            f"got {said!r}"
        )
    return int(at.timestamp() * 1000)
