"""Numbers with units, as people type them on a command line, and counts as they like to read them."""

from __future__ import annotations

import re
from typing import Final

from deadletter.core.deciding.backoff import DEFAULT_CAP_MS, Backoff, Exponential, Fixed, Linear
from deadletter.core.text.durations import UNIT_MS, duration_ms, whole_duration_ms
from deadletter.errors import UsageError

_RATE: Final = re.compile(rf"(?P<number>\d+(\.\d+)?)\s*(/\s*(?P<unit>{'|'.join(UNIT_MS)}))?")


def parse_rate(text: str) -> float:
    """`500`, `500/s`, `30/min`, `10/h` as letters per second."""
    found = _RATE.fullmatch(text.strip())
    rate = float(found["number"]) * 1_000 / UNIT_MS[found["unit"] or "s"] if found else 0.0
    if rate <= 0:
        raise UsageError(f"expected a rate above zero such as 500/s, 30/min or 10/h, got {text!r}")
    return rate


def parse_span(text: str) -> float:
    """A duration above zero, in seconds."""
    try:
        seconds = duration_ms(text) / 1_000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f"expected a time above zero such as 90s, 15min or 1h30m, got {text!r}")
    return seconds


def count(number: int, noun: str = "letter") -> str:
    """`1 letter`, `20,000 letters`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
