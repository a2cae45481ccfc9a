"""Numbers with units, as people type them on a command line, and counts as they like to read them."""

from __future__ import annotations

import re
from typing import Final

from deadletter.core.text.durations import UNIT_MS, duration_ms
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
