"""What the past of a group tells of its category: it ended by itself, or goes on however often it is tried.

It says nothing of data and of overload: a burst of bad messages is bad messages, and one that is over is no
reason to call them otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.core.grouping.category import By, Category, Judgement
from deadletter.core.text.durations import rough_duration_text

_HOUR_MS: Final = 3_600_000
BURST_LETTERS: Final = 3
BURST_MS: Final = _HOUR_MS
"""Letters that died within so long came in one burst."""
QUIET_MS: Final = 24 * _HOUR_MS
"""After so long without a letter it is over."""
STEADY_HOURS: Final = 6
STEADY_MS: Final = 24 * _HOUR_MS
"""In so many different hours, over so long: it does not end by itself."""
STEADY_TRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPast:
    """What a store knows of a group's past."""

    letters: int
    """That ever came."""
    first_ms: int
    last_ms: int
    hours: int
    """Different hours in which letters died."""
    tries: int
    """How often letters that are here were sent back, and failed."""
    releases: int
    """Different releases that letters named."""
    own_code: bool
    """Whether it fails in code of the application's own."""


def judge(first: Judgement, history: GroupPast, *, now_ms: int) -> Judgement:
    """History beats the first guess; a person's word and a rule beat history."""
    if first.by is not By.GUESS or first.category in (Category.DATA, Category.OVERLOAD):
        return first
    lasted_ms, quiet_ms = history.last_ms - history.first_ms, now_ms - history.last_ms
    if history.letters >= BURST_LETTERS and lasted_ms <= BURST_MS and quiet_ms >= QUIET_MS:
        return Judgement(
            category=Category.TRANSIENT,
            by=By.HISTORY,
            why=f"{history.letters:,} letters died within {rough_duration_text(max(lasted_ms, 1_000))}, "
            f"and none in the {rough_duration_text(quiet_ms)} since",
        )
    steady = history.hours >= STEADY_HOURS and lasted_ms >= STEADY_MS and quiet_ms < QUIET_MS
    if steady and history.tries >= STEADY_TRIES:
        bug = first.category is Category.BUG or (history.own_code and history.releases < 2)
        over = f", over {history.releases} releases" if history.releases > 1 else ""
        return Judgement(
            category=Category.BUG if bug else Category.PERMANENT,
            by=By.HISTORY,
            why=f"it has failed for {rough_duration_text(lasted_ms)}{over}, and none of {history.tries:,} "
            "tries went through",
        )
    return first
