"""Numbers with units, as people type them on a command line and as they like to read them."""

from __future__ import annotations

import re
from typing import Final

from deadletter.errors import UsageError

_RATE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(/\s*(?P<unit>s|m|min|h))?")
_PER_S: Final = {"s": 1.0, "m": 1 / 60, "min": 1 / 60, "h": 1 / 3600}
_SPAN: Final = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>ms|s|m|min|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_rate(text: str) -> float:
    """`500`, `500/s`, `30/min`, `10/h` as letters per second."""
    found = _RATE.fullmatch(text.strip())
    rate = float(found["number"]) * _PER_S[found["unit"] or "s"] if found else 0.0
    if rate <= 0:
        raise UsageError(f"expected a rate above zero such as 500/s, 30/min or 10/h, got {text!r}")
    return rate


def parse_span(text: str) -> float:
    """`90`, `90s`, `15min`, `2h`, `500ms` as seconds."""
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found["number"]) * _SECONDS[found["unit"] or "s"] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"expected a time above zero such as 90s, 15min or 2h, got {text!r}")
    return seconds


def count(number: int, noun: str = "letter") -> str:
    """`1 letter`, `20,000 letters`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """`340 ms`, `2.1 s`, `3 min 12 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
