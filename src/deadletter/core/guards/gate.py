"""A gate: all that may keep letters of one origin (or of one group of it) from going back, in one answer.

Each guard answers for itself, and the strictest answer counts (`flow.strictest`). A guard that holds spares
the others the question: a breaker must not wait for its probe while nobody consumes. After a guard that
closed for a reason outside (nobody consumes, too deep, copies) letters come back on a ramp: thousands may
have gathered, and the origin is only just well again.

`flow` is asked for every letter. While nothing is closed it is one comparison: the answer Free is kept for
some milliseconds, and every call that could close the gate throws it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from deadletter.core.guards.breaker import Breaker
from deadletter.core.guards.flow import FREE, Flow, Free, Hold, Probe, Ramp, strictest
from deadletter.core.guards.phase import FIRST_PER_S, Climb, Phase, PhasedGuard

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
ANSWER_S: Final = 30.0
"""A probe that was neither accepted nor refused by then is lost with its connection; another one is due."""


class FullOrigin(PhasedGuard):
    """An origin that refuses letters (it is full, `reject-publish`): wait, try one, then faster and faster.

    Unlike with the breaker every outcome is told, and at once: the broker confirms a letter or it does not. A
    refusal of the probe doubles the pause. A refusal on the ramp does not: there was room, we only came too
    fast, and the next ramp begins at half the rate this one reached.
    """

    guard = "full"
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


FREE_FOR_S: Final = 0.01
"""How long the answer Free is kept."""
STOPPED_S: Final = 5.0
"""How soon to ask again at a gate that only a person opens."""
STALE_AFTER: Final = 3
"""So many times the span after which health should have been looked at again; then it is unknown."""
SETTLED_S: Final = 1.0
"""A gate that is open for less is not told to be: a budget opens and closes several times a second."""


class GateState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    PROBING = "probing"
    RAMPING = "ramping"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNotice:
    """A gate is in another state than it was. Of an open one, `guard` is the guard that had closed it."""

    key: str
    origin: str
    state: GateState
    guard: str
    why: str


class Gate:
    """Told what happens at an origin, it says how letters may flow there."""

    def __init__(self, key: str, origin: str, breaker: Breaker | None = None) -> None:
        self.key: str = key
        self.origin: str = origin
        self._breaker = breaker
        self._refusals = FullOrigin()
        self._health: Hold | None = None
        self._health_stale_at = 0.0
        self._stopped: str | None = None
        self._budget: Flow = FREE
        self._climb: Climb | None = None
        """After health or growth had closed it."""
        self._climb_guard = ""
        self._free_until = 0.0
        self._told = GateState.OPEN
        self._guard = ""
        self._open_since: float | None = None

    def flow(self, now: float) -> Flow:
        """How letters may go now."""
        if now < self._free_until:
            return FREE
        answer = self._outside(now)
        if not isinstance(answer, Hold):
            answer = strictest(answer, self._refusals.flow(now))
        if self._breaker is not None and not isinstance(answer, Hold):
            answer = strictest(answer, self._breaker.flow(now))
        if not isinstance(answer, Hold):
            answer = strictest(answer, self._within_budget(now))
        if answer is FREE:
            self._free_until = now + FREE_FOR_S
        return answer

    def changed(self, now: float) -> GateNotice | None:
        """The gate's state when it is another than was told before; ask after `flow`, and now and then."""
        if now < self._free_until and self._told is GateState.OPEN:
            return None
        answer = self.flow(now)
        state, guard, why = self._state(answer)
        if state is GateState.OPEN:
            self._open_since = now if self._open_since is None else self._open_since
            if self._told is state or now - self._open_since < SETTLED_S:
                return None
            guard, why = self._guard, "letters go as they come"
        else:
            self._open_since = None
            if (state, guard) == (self._told, self._guard):
                return None
        self._told, self._guard = state, guard
        return GateNotice(key=self.key, origin=self.origin, state=state, guard=guard, why=why)

    # -- what happens -------------------------------------------------------------------------------------

    def released(self, now: float, letters: int = 1, *, attempt: int = 0) -> None:
        """So many letters went to the origin and were confirmed; the probe is told by `probe_sent`."""
        if self._breaker is not None:
            self._breaker.released(now, letters, attempt=attempt)

    def died_again(
        self, now: float, letter_id: str, *, attempt: int = 0, released_at: float | None = None
    ) -> None:
        """A letter that had gone back by this gate died again."""
        if self._breaker is not None:
            self._breaker.died_again(now, letter_id, attempt=attempt, released_at=released_at)
            if self._breaker.phase is not Phase.FREE:
                self._free_until = 0.0

    def probe_died(self, now: float, letter_id: str) -> None:
        """A letter is dead again, and says nothing of how the origin is unless it is the probe."""
        if self._breaker is not None and self._breaker.probe_died(now, letter_id):
            self._free_until = 0.0

    def probe_sent(self, now: float, letter_id: str, attempt: int = 0) -> None:
        """The letter that `Probe` allowed is on its way."""
        self._refusals.probe_sent(now)
        if self._breaker is not None:
            self._breaker.probe_sent(now, letter_id, attempt)

    def pioneer(self, now: float, attempt: int) -> bool:
        """Whether a letter that failed so often may go although the breaker holds the others."""
        if self._breaker is None or not self._breaker.pioneer(now, attempt):
            return False
        return self._outside(now) is FREE and self._refusals.flow(now) is FREE

    def pioneer_sent(self, now: float, letter_id: str, attempt: int) -> None:
        """The letter that `pioneer` allowed is on its way."""
        if self._breaker is not None:
            self._breaker.pioneer_sent(now, letter_id, attempt)

    def trip(self, now: float, why: str) -> None:
        """Another instance's breaker closed."""
        if self._breaker is not None:
            self._breaker.trip(now, why)
            self._free_until = 0.0

    def open(self, now: float) -> None:
        """Another instance's breaker found the origin well again."""
        if self._breaker is not None:
            self._breaker.open(now)

    def refused(self, now: float, *, unasked: bool = False) -> None:
        """The origin did not take a letter. `unasked`: no gate had let it through. Where a probe is due, that
        was it."""
        if unasked:
            self._refusals.probe_sent(now)
        self._refusals.refused(now)
        self._free_until = 0.0

    def accepted(self, now: float) -> None:
        """The origin took a letter."""
        self._refusals.accepted(now)

    def healthy(self, answer: Free | Hold, now: float) -> None:
        """What `health.health` says, each time it was asked."""
        if isinstance(answer, Hold):
            self._health = answer
            self._health_stale_at = now + STALE_AFTER * max(0.0, answer.until - now)
            self._free_until = 0.0
        elif self._health is not None:
            self._climb_after(self._health.guard, now)
            self._health = None

    def budget(self, answer: Free | Hold | Ramp) -> None:
        """What the budgets say. A Hold ends by itself when its time is over."""
        self._budget = answer
        if answer is not FREE:
            self._free_until = 0.0

    def stop(self, why: str) -> None:
        """Nothing goes until `resume`: letters become more."""
        self._stopped = why
        self._free_until = 0.0

    def resume(self, now: float) -> None:
        """A person says that it may go on."""
        if self._stopped is not None:
            self._stopped = None
            self._climb_after("growth", now)

    # -- the answers of those that are told from outside ----------------------------------------------------

    def _outside(self, now: float) -> Flow:
        if self._stopped is not None:
            return Hold(until=now + STOPPED_S, guard="growth", why=self._stopped)
        if self._health is not None:
            if now < self._health.until:
                return self._health
            if now < self._health_stale_at:
                return Hold(until=self._health_stale_at, guard=self._health.guard, why=self._health.why)
            self._climb_after(self._health.guard, now)
            self._health = None
        if self._climb is not None:
            rate_per_s = self._climb.rate_per_s(now)
            if rate_per_s is not None:
                why = "letters may go again, faster and faster"
                return Ramp(rate_per_s=rate_per_s, guard=self._climb_guard, why=why)
            self._climb = None
        return FREE

    def _within_budget(self, now: float) -> Flow:
        if isinstance(self._budget, Hold) and now >= self._budget.until:
            self._budget = FREE
        return self._budget if not isinstance(self._budget, Free) else FREE

    def _climb_after(self, guard: str, now: float) -> None:
        self._climb = Climb(now)
        self._climb_guard = guard
        self._free_until = 0.0

    def _state(self, answer: Flow) -> tuple[GateState, str, str]:
        match answer:
            case Free():
                return GateState.OPEN, "", ""
            case Hold(guard=guard, why=why):
                waits = self._probing(guard)
                return GateState.PROBING if waits else GateState.CLOSED, guard, why
            case Probe(guard=guard, why=why):
                return GateState.PROBING, guard, why
            case Ramp(guard=guard, why=why):
                return GateState.RAMPING, guard, why
            case _:
                assert_never(answer)

    def _probing(self, guard: str) -> bool:
        """Whether this guard only holds until it is known what became of its probe."""
        if guard == "full":
            return self._refusals.phase.probing
        return guard == "breaker" and self._breaker is not None and self._breaker.phase.probing
