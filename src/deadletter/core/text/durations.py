"""Durations: as people write them (`90`, `1.5s`, `15min`, `1h30m`) and as they read them (`1.5 s`, `10 min`).

One reader for the configuration file, the environment and the command line; it also reads what is printed
here. A number without a unit is seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UNIT_MS: Final[Mapping[str, int]] = MappingProxyType(
    {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1_000, "ms": 1}
)
EXAMPLES: Final = '"500ms", "90s", "15min", "1h30m" or "1d"'
_NUMBER: Final = r"\d{1,12}(?:\.\d{1,9})?"
_UNIT: Final = r"(?:ms|s|min|m|h|d)"
_BARE: Final = re.compile(rf"\s*({_NUMBER})\s*")
_PART: Final = re.compile(rf"({_NUMBER})\s*({_UNIT})\s*")
DURATION_PATTERN: Final = rf"^\s*{_NUMBER}\s*({_UNIT}\s*({_NUMBER}\s*{_UNIT}\s*)*)?$"
"""For who checks a text without reading it: it lets `30m1h` pass, which the reader refuses."""

_PRINTED: Final = tuple((unit, UNIT_MS[unit]) for unit in ("d", "h", "min", "s"))


def duration_ms(value: object) -> float:
    """Milliseconds of a text, or of a number of seconds. ValueError says what was expected."""
    match value:
        case bool():
            pass
        case int() if value >= 0:
            return value * 1_000
        case float() if math.isfinite(value) and value >= 0:
            return value * 1_000
        case str() if bare := _BARE.fullmatch(value):
            return float(bare[1]) * 1_000
        case str() if (found := _parts_ms(value.strip())) is not None:
            return found
        case _:
            pass
    raise ValueError(f"a time such as {EXAMPLES}, or a number of seconds")


def whole_duration_ms(value: object) -> int:
    """The same where a millisecond is the smallest there is, as on a broker."""
    found_ms = duration_ms(value)
    if abs(found_ms - round(found_ms)) > 1e-6:
        raise ValueError("a time in whole milliseconds")
    return round(found_ms)


def _parts_ms(text: str) -> float | None:
    """`1h30m`: each unit once, the greater before the smaller; None where it is not so."""
    place, total_ms, smallest_ms = 0, 0.0, math.inf
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or UNIT_MS[part[2]] >= smallest_ms:
            return None
        smallest_ms = UNIT_MS[part[2]]
        total_ms += float(part[1]) * smallest_ms
        place = part.end()
    return total_ms if text else None


def duration_text(duration_ms: int) -> str:
    """Exact: the largest unit in which one decimal is enough, so 61 s stays 61 s."""
    for unit, unit_ms in _PRINTED:
        if duration_ms >= unit_ms and duration_ms * 10 % unit_ms == 0:
            return f"{_trimmed(duration_ms / unit_ms)} {unit}"
    return f"{duration_ms} ms"


def rough_duration_text(duration_ms: int) -> str:
    """Rounded to what matters: two digits or so, for sums and averages."""
    for unit, unit_ms in _PRINTED:
        if duration_ms >= unit_ms:
            amount = duration_ms / unit_ms
            return f"{_trimmed(amount) if amount < 10 else round(amount)} {unit}"
    return f"{duration_ms} ms"


def elapsed_text(seconds: float) -> str:
    """What something took: `340 ms`, `2.1 s`, `3 min 12 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _trimmed(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")
