"""Back-off as one types it on a command line: `1s,5s,30s`, `linear:10s..5min`, `exponential:1s..10min`."""

from __future__ import annotations

from deadletter.core.deciding.backoff import DEFAULT_CAP_MS, Backoff, Exponential, Fixed, Linear
from deadletter.core.text.durations import whole_duration_ms
from deadletter.errors import UsageError


def parse_backoff(text: str) -> Backoff:
    """A list of delays, or how they grow: from the first, up to the cap after two dots."""
    kind, colon, span = text.partition(":")
    try:
        if not colon:
            return Fixed(delays_ms=tuple(whole_duration_ms(part) for part in text.split(",")))
        first, dots, cap = span.partition("..")
        cap_ms = whole_duration_ms(cap) if dots else DEFAULT_CAP_MS
        match kind.strip():
            case "linear":
                return Linear(step_ms=whole_duration_ms(first), cap_ms=cap_ms)
            case "exponential":
                return Exponential(first_ms=whole_duration_ms(first), cap_ms=cap_ms)
            case _:
                raise ValueError("linear:STEP..CAP, exponential:FIRST..CAP, or a list of times")
    except ValueError as error:
        raise UsageError(
            f"--backoff: expected {error}, got {text!r}; for example 1s,5s,30s or exponential:1s..10min"
        ) from error
