"""An origin that refuses letters (it is full, `reject-publish`): wait, try one, then go faster and faster.

Unlike with the breaker every outcome is told, and at once: the broker confirms a letter or it does not. A
refusal of the probe doubles the pause. A refusal on the ramp does not: there was room, we only came too fast,
and the next ramp begins at half the rate this one reached.
"""

from __future__ import annotations

from typing import Final, assert_never

from deadletter.core.guards.phase import FIRST_PER_S, Climb, Phase, PhasedGuard

GUARD: Final = "full"
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
ANSWER_S: Final = 30.0
"""A probe that was neither accepted nor refused by then is lost with its connection; another one is due."""


class FullOrigin(PhasedGuard):
    """It is told every refusal, and every acceptance."""

    guard = GUARD
    waiting = "waiting whether the origin takes a letter"
    opening = "the origin takes letters again"

    def __init__(self) -> None:
        super().__init__("the origin refuses letters; it is full")
        self._pause_s = PAUSE_S
        self._first_per_s = FIRST_PER_S

    def refused(self, now: float) -> None:
        """The origin did not take a letter. Many that were on their way together are one refusal."""
        rate_per_s = self._advance(now)
        match self._phase:
            case Phase.FREE:
                self._hold(now, pause_s=PAUSE_S, first_per_s=FIRST_PER_S)
            case Phase.RAMPING:
                self._hold(now, pause_s=PAUSE_S, first_per_s=rate_per_s / 2)
            case Phase.PROBING:
                self._hold(now, pause_s=min(self._pause_s * 2, PAUSE_MAX_S), first_per_s=FIRST_PER_S)
            case Phase.HELD | Phase.PROBE_DUE:
                pass
            case _:
                assert_never(self._phase)

    def accepted(self, now: float) -> None:
        """The origin took a letter. Only said of the probe does it change anything."""
        if self._phase is Phase.PROBING:
            self._ramp(now)

    def probe_sent(self, now: float) -> None:
        self._advance(now)
        if self._phase is Phase.PROBE_DUE:
            self._phase = Phase.PROBING
            self._until = now + ANSWER_S

    def _advance(self, now: float) -> float:
        if self._phase in (Phase.HELD, Phase.PROBING) and now >= self._until:
            self._phase = Phase.PROBE_DUE
            self._until = now + PAUSE_MAX_S
        elif self._phase is Phase.PROBE_DUE and now >= self._until:
            self._ramp(now)  # no letter came to try with
        if self._phase is Phase.RAMPING:
            rate_per_s = self._climb.rate_per_s(now)
            if rate_per_s is not None:
                return rate_per_s
            self._phase = Phase.FREE
        return 0.0

    def _hold(self, now: float, *, pause_s: float, first_per_s: float) -> None:
        self._phase = Phase.HELD
        self._pause_s = pause_s
        self._first_per_s = first_per_s
        self._until = now + pause_s

    def _ramp(self, now: float) -> None:
        self._phase = Phase.RAMPING
        self._climb = Climb(now, first_per_s=self._first_per_s)
