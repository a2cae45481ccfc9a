"""The switch of something that fails, and costs much when it does: off for a while, then one try.

::

    on ──fails too often──▶ off ──pause──▶ on trial ──it works──▶ on
                             ▲                │
                             └─ twice the pause ── it fails

One failure among many that work is no reason: each counts until ten others worked.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

FAILURES: Final = 3
"""So many that nothing made up for switch it off."""
MAKES_UP: Final = 10
"""So many that work make up for one failure."""
PAUSE_S: Final = 30.0
PAUSE_MAX_S: Final = 600.0


class Position(Enum):
    ON = auto()
    OFF = auto()
    TRIAL = auto()
    """One may be tried, and nothing more until it is known what became of it."""


class Switch:
    """Told each outcome, it says whether to go on. The time is an argument."""

    __slots__ = ("_off_until", "_pause_s", "_score", "failures")

    def __init__(self) -> None:
        self.failures: int = 0
        """In all."""
        self._score = 0
        """In tenths of a failure."""
        self._off_until: float | None = None
        self._pause_s = PAUSE_S

    @property
    def idle(self) -> bool:
        """Whether nothing is held against it."""
        return self._off_until is None and not self._score

    @property
    def pause_s(self) -> float:
        """How long it is off, when it is."""
        return self._pause_s

    def position(self, now: float) -> Position:
        if self._off_until is None:
            return Position.ON
        return Position.TRIAL if now >= self._off_until else Position.OFF

    def failed(self, now: float) -> bool:
        """Whether that switches it off."""
        self.failures += 1
        self._score += MAKES_UP
        if self._off_until is not None:
            self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        elif self._score < FAILURES * MAKES_UP:
            return False
        self._off_until = now + self._pause_s
        return True

    def worked(self) -> bool:
        """Whether that switches it on again. The next failure but one would switch it off."""
        if self._off_until is None:
            self._score = max(0, self._score - 1)
            if not self._score:
                self._pause_s = PAUSE_S
            return False
        self._off_until = None
        self._score = (FAILURES - 2) * MAKES_UP
        return True
