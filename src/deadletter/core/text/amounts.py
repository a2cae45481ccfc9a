"""Rates and spans as people type them, in an option or in a field of the page."""

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


def rate_text(rate: float) -> str:
    """`20/s`, `30/min`, `10/h`: as it would be typed, in the unit in which it is a number of letters."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if rate * seconds >= 1:
            return f"{rate * seconds:g}/{unit}"
    return f"{rate * 3600:g}/h"


def parse_span(text: str) -> float:
    """A duration above zero, in seconds."""
    try:
        seconds = duration_ms(text) / 1_000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f"expected a time above zero such as 90s, 15min or 1h30m, got {text!r}")
    return seconds


def parse_share(name: str, said: str) -> float:
    """`5%`, or `0.05`."""
    number, percent, rest = said.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 1:
        raise UsageError(f"{name}: expected 0% to 100%, or 0 to 1, got {said!r}")
    return share


def share_text(share: float) -> str:
    return f"{share * 100:.3g} %"
