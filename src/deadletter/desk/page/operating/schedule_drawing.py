"""A schedule as a line: failures as dots, the waits between them, and what comes at the end.

A wait is as long as the logarithm of its time: 5 seconds and 2 hours are both to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import Final

from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.operations.rulebook.rulebook import TreatmentTold

SHOWN: Final = 14
"""So many waits are drawn; the others are counted."""
_EDGE: Final = 14.0
_LEAST: Final = 46.0
_PER_CHAR: Final = 7.0
_PER_TEN: Final = 22.0
"""So much longer is a wait that takes ten times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWait:
    """From one failure to the next. `spread`: whether its time is one of several; `exact` says which."""

    x: float
    end: float
    label: str
    exact: str
    spread: bool

    @property
    def middle(self) -> float:
        return round((self.x + self.end) / 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSchedule:
    """`left_out`: so many retries more are not drawn. `words`: what a screen reader says."""

    width: float
    waits: tuple[DrawnWait, ...]
    end: float
    then: str
    left_out: int
    words: str


def draw_schedule(treatment: TreatmentTold) -> DrawnSchedule:
    """No rungs: the first failure is the end."""
    rungs = treatment.rungs_ms
    waits: list[DrawnWait] = []
    x = _EDGE
    for number in range(min(treatment.retries, SHOWN) if rungs else 0):
        choices = rungs[min(number, len(rungs) - 1)]
        long_s = max(choices) / 1000
        label = _label(choices)
        end = x + max(_PER_CHAR * len(label) + _EDGE, _LEAST + _PER_TEN * log10(1 + long_s))
        spread = len(set(choices)) > 1
        waits.append(
            DrawnWait(x=round(x, 1), end=round(end, 1), label=label, exact=_exact(choices), spread=spread)
        )
        x = end
    left_out = max(0, treatment.retries - len(waits)) if rungs else 0
    width = x + (64 if left_out else 0) + 90
    return DrawnSchedule(
        width=round(width),
        waits=tuple(waits),
        end=round(x + (64 if left_out else 0), 1),
        then=treatment.then,
        left_out=left_out,
        words=treatment.text,
    )


def _label(choices: tuple[int, ...]) -> str:
    low, high = min(choices), max(choices)
    return duration_text(low) if low == high else f"≈ {rough_duration_text((low + high) // 2)}"


def _exact(choices: tuple[int, ...]) -> str:
    low, high = min(choices), max(choices)
    return duration_text(low) if low == high else f"{duration_text(low)} to {duration_text(high)}"
