"""Durations as people read them: `1.5 s`, `10 min`, `2 h`."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def duration_text(duration_ms: int) -> str:
    """Exact: the largest unit in which one decimal is enough, so 61 s stays 61 s."""
    for unit, unit_ms in _UNITS:
        if duration_ms >= unit_ms and duration_ms * 10 % unit_ms == 0:
            return f"{_trimmed(duration_ms / unit_ms)} {unit}"
    return f"{duration_ms} ms"


def rough_duration_text(duration_ms: int) -> str:
    """Rounded to what matters: two digits or so, for sums and averages."""
    for unit, unit_ms in _UNITS:
        if duration_ms >= unit_ms:
            amount = duration_ms / unit_ms
            return f"{_trimmed(amount) if amount < 10 else round(amount)} {unit}"
    return f"{duration_ms} ms"


def _trimmed(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")
