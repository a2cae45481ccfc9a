"""The phases of a guard that closes and opens again by itself.

It opens by going faster and faster (`Climb`): one letter a second, then twice as many every second, until
it is so fast that a limit makes no difference. The climb goes by time and not by letters: where few letters
wait, the gate opens all the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar, Final, assert_never

from deadletter.core.guards.flow import FREE, Flow, Hold, Probe, Ramp


class Phase(Enum):
    """Where it stands."""

    FREE = auto()
    HELD = auto()
    """Nothing goes, for a pause."""
    PROBE_DUE = auto()
    """One letter may go."""
    PROBING = auto()
    """It went; nothing more goes until it is known what became of it."""
    RAMPING = auto()
    """Letters go, faster and faster."""

    @property
    def probing(self) -> bool:
        return self in (Phase.PROBE_DUE, Phase.PROBING)


STEP_S: Final = 1.0
FIRST_PER_S: Final = 1.0
FREE_PER_S: Final = 500.0
"""A climb that would be faster than this is at its end."""
_MOST_STEPS: Final = 64
"""Far more than any climb has; so long a pause between two questions is one long step."""


class Climb:
    """A rate that grows. `linger` keeps it as it is for a while; None is the end of it."""

    __slots__ = ("_rate_per_s", "_step_at")

    def __init__(self, now: float, *, first_per_s: float = FIRST_PER_S) -> None:
        self._rate_per_s = max(FIRST_PER_S, min(first_per_s, FREE_PER_S / 2))
        self._step_at = now + STEP_S

    def linger(self, now: float) -> None:
        """Not faster yet. Two steps: at one letter a second, one step ends just when the next letter dies."""
        self._step_at = now + 2 * STEP_S

    def rate_per_s(self, now: float) -> float | None:
        """How fast now; None when there is no need for a limit any more."""
        steps = 0
        while now >= self._step_at and self._rate_per_s < FREE_PER_S and steps < _MOST_STEPS:
            self._rate_per_s *= 2
            self._step_at += STEP_S
            steps += 1
        return self._rate_per_s if self._rate_per_s < FREE_PER_S else None


class PhasedGuard(ABC):
    """Told what becomes of letters, it says how they may flow."""

    guard: ClassVar[str]
    waiting: ClassVar[str]
    """Why nothing goes while it is not known what became of the probe."""
    opening: ClassVar[str]
    """Why letters go again."""

    def __init__(self, why: str = "") -> None:
        self._phase = Phase.FREE
        self._until = 0.0
        self._why = why
        self._climb = Climb(0.0)

    @property
    def phase(self) -> Phase:
        return self._phase

    def flow(self, now: float) -> Flow:
        """How letters may go now."""
        if self._phase is Phase.FREE:
            return FREE
        rate_per_s = self._advance(now)
        match self.phase:
            case Phase.FREE:
                return FREE
            case Phase.HELD:
                return Hold(until=self._until, guard=self.guard, why=self._why)
            case Phase.PROBE_DUE:
                return Probe(guard=self.guard, why=self._why)
            case Phase.PROBING:
                return Hold(until=self._until, guard=self.guard, why=self.waiting)
            case Phase.RAMPING:
                return Ramp(rate_per_s=rate_per_s, guard=self.guard, why=self.opening)
            case _:
                assert_never(self.phase)

    @abstractmethod
    def _advance(self, now: float) -> float:
        """What the time alone changes; on a ramp, how fast it is."""
