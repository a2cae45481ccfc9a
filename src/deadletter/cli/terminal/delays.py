"""Delays as people type them on a command line."""

from __future__ import annotations

from deadletter.core.deciding.backoff import DEFAULT_CAP_MS, MAX_DELAY_MS, Backoff, Exponential, Fixed, Linear
from deadletter.core.text.durations import whole_duration_ms
from deadletter.errors import UsageError


def parse_backoff(text: str) -> Backoff:
    """`1s,5s,30s`, `linear:10s..5min`, `exponential:1s..10min`: delays, or how they grow up to a cap."""
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


def parse_delays(option: str, text: str) -> frozenset[int]:
    """`90s,2min`: delays in milliseconds."""
    try:
        found = frozenset(whole_duration_ms(part) for part in text.split(","))
        if not all(0 < delay_ms <= MAX_DELAY_MS for delay_ms in found):
            raise ValueError("times from 1ms to 49.7d, the longest RabbitMQ takes")
    except ValueError as error:
        raise UsageError(f"{option}: expected {error}, got {text!r}; for example 90s,2min") from error
    return found
