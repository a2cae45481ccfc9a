"""The breaker: when everything that returns dies again, hold, probe with one letter, go faster and faster.

::

    free ──letters die again──▶ held ──pause──▶ probe due ──sent──▶ probing ──it lives──▶ ramping ──▶ free
                                 ▲                                     │                     │
                                 └──── twice the pause ◀── it dies ────┴── too many die ◀────┘
                 held, probe due, probing ──a pioneer lives──▶ ramping

A release is not an outcome: that a letter was handled well is told by nobody, only that it died again. But a
letter that dies again says when it had been released, so of the letters that went at one time it is known how
many came back (`cohorts`). What counts is that share, once enough letters died: in the whole window, and in a
quarter of it, or after a good minute an outage would need most of another minute to be seen.

**Letters that failed less often say little about those that failed more.** Letters that need three tries look
like an outage when the first wave of them dies, and the one that is probed with is the next that needs three.
So while letters are held, one that failed more often than those that died may go all the same, few of them in
one outage: a *pioneer*. If it lives, letters go again, and deaths of letters that failed less often than it
do not count until the gate was open for a while.

Only probes and pioneers are known by their id, and only a few. One that dies after it was taken for a success
closes the gate again, also when letters flow freely already; the next probe is given as much time as that one
took.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from deadletter.core.guards.cohorts import Cohorts, Share
from deadletter.core.guards.phase import Climb, Phase, PhasedGuard
from deadletter.core.text.durations import duration_text, rough_duration_text

GUARD: Final = "breaker"
BUCKETS: Final = 60
"""Of one window."""
QUARTER: Final = BUCKETS // 4
LOOK_BACK: Final = BUCKETS * 5
"""A letter that takes longer to die says nothing of how things are."""
MAX_PROBES: Final = 16
"""So many probes are known by their id."""
PIONEERS: Final = 8
"""In one outage: each may cost a letter one of its attempts."""
NOTED_S: Final = 0.05
"""The time on a letter and the time of its release may differ by so much."""
USUAL: Final = 0.9
"""Of the letters that died, so many failed no more often than what is taken for usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """Hold letters of an origin when `share` of those released in `window_ms` died, `letters` at least."""

    enabled: bool = True
    letters: int = 20
    share: float = 0.9
    window_ms: int = 60_000
    pause_ms: int = 5_000
    """Before the first probe; twice as long after each that fails, up to `pause_max_ms`."""
    pause_max_ms: int = 300_000
    probe_ms: int = 5_000
    """How long a probe may take to die again; after that it is taken for a success."""


class _Pioneer(NamedTuple):
    letter_id: str
    sent_at: float
    attempt: int


class Breaker(PhasedGuard):
    """One origin's or group's. It is told what was released and what died again."""

    guard = GUARD
    waiting = "waiting whether the probe dies again"
    opening = "the probe did not die again"

    def __init__(self, terms: BreakerTerms, since: float = float("-inf")) -> None:
        super().__init__()
        bucket_s = self._bucket_s = terms.window_ms / 1000 / BUCKETS
        self._terms = terms
        self._cohorts = Cohorts(bucket_s=bucket_s, buckets=LOOK_BACK)
        self._since = since
        """Since then releases are counted: of what went before nobody knows how many there were."""
        self._enough = terms.letters
        """So many deaths are worth a look; worked out about once a bucket."""
        self._look_at = 0.0
        self._lately: deque[int] = deque(maxlen=max(1, terms.letters))
        """The attempts of the last letters that died."""
        self._free_since: float | None = None
        """None: it never tripped."""
        self._pause_s = terms.pause_ms / 1000
        self._patience_s = terms.probe_ms / 1000
        self._probes: dict[str, tuple[float, int]] = {}
        """When each was sent, and as which attempt."""
        self._tried = 0
        """The attempt of the last probe."""
        self._pioneer: _Pioneer | None = None
        """The one of which it is not known yet what becomes of it."""
        self._pioneers = 0
        self._refuted = 0
        """Letters of this attempt die, and of every lower one."""
        self._lives = 0
        """A letter of this attempt lived; of a lower one nothing follows."""
        self._ramp_releases = self._ramp_deaths = 0

    def pioneer(self, now: float, attempt: int) -> bool:
        """Whether a letter of this attempt may go although others are held; then say `pioneer_sent`."""
        self._advance(now)
        held = self._phase in (Phase.HELD, Phase.PROBE_DUE, Phase.PROBING)
        return held and self._pioneers < PIONEERS and attempt > self._refuted

    def pioneer_sent(self, now: float, letter_id: str, attempt: int) -> None:
        """It went. Others of its attempt wait for what becomes of it."""
        self._pioneers += 1
        self._refuted = max(self._refuted, attempt)
        self._pioneer = _Pioneer(letter_id, now, attempt)
        self._remember(now, letter_id, attempt)

    def released(self, now: float, letters: int = 1, *, attempt: int = 0) -> None:
        """So many letters went back to their origin; a probe is told by `probe_sent` alone."""
        if self._lives and attempt < self._needed(now):
            return
        self._cohorts.released(now, letters)
        if self._phase is Phase.RAMPING:
            self._ramp_releases += letters

    def probe_sent(self, now: float, letter_id: str, attempt: int = 0) -> None:
        """The one letter went. Nothing happens where no probe was asked for."""
        self._advance(now)
        if self._phase is not Phase.PROBE_DUE:
            return
        self._remember(now, letter_id, attempt)
        self._tried = attempt
        self._phase = Phase.PROBING
        self._until = now + self._patience_s

    def died_again(
        self, now: float, letter_id: str, *, attempt: int = 0, released_at: float | None = None
    ) -> None:
        """A letter that had been released is dead again, whoever released it; by default just now."""
        if not self._terms.enabled:
            return
        self._advance(now)
        at = now if released_at is None else released_at
        if (
            self.probe_died(now, letter_id)
            or at < self._since - NOTED_S
            or (self._lives and attempt < self._needed(now))
        ):
            return
        match self._phase:
            case Phase.FREE:
                if self._count(now, attempt, at) and (why := self._outage(now)) is not None:
                    self._trip(now, why)
            case Phase.RAMPING:
                self._count(now, attempt, at)
                self._ramp_deaths += 1
                if self._ramp_deaths >= self._terms.share * self._ramp_releases:
                    self._hold(now, f"{self._ramp_deaths} of {self._ramp_releases} died again on the ramp")
                elif self._ramp_deaths >= self._terms.share / 2 * self._ramp_releases:
                    self._climb.linger(now)
            case Phase.HELD | Phase.PROBE_DUE | Phase.PROBING:
                pass  # on its way since before; the probe tells how things stand now
            case _:
                assert_never(self._phase)

    def probe_died(self, now: float, letter_id: str) -> bool:
        """Whether this letter, that is dead again, was a probe or a pioneer; if so, that is all it was."""
        sent = self._probes.get(letter_id)
        if sent is None or self._long_free(now):
            return False
        sent_at, attempt = self._probes.pop(letter_id)
        took_s = now - sent_at
        if took_s > self._patience_s:
            self._patience_s = min(self._terms.pause_max_ms / 1000, took_s * 1.5)
        if self._pioneer is not None and self._pioneer.letter_id == letter_id:
            self._pioneer = None
            if self._phase in (Phase.HELD, Phase.PROBE_DUE, Phase.PROBING):
                return True  # one more that dies, while others are held for it already
        if self._lives and attempt < self._lives:
            return True  # one that failed more often lived since
        self._refuted = max(self._refuted, attempt)
        if self._phase in (Phase.PROBING, Phase.RAMPING, Phase.FREE):
            self._hold(now, f"the probe died again after {rough_duration_text(round(took_s * 1000))}")
        return True

    def trip(self, now: float, why: str) -> None:
        """Hold: somebody else saw that letters die again. Nothing happens where it is held already."""
        if self._terms.enabled and self._phase in (Phase.FREE, Phase.RAMPING):
            self._trip(now, why)

    def open(self, now: float) -> None:
        """Let everything go: somebody else saw that letters live, or a person says so."""
        if self._phase is not Phase.FREE:
            self._probes.clear()
            self._start_counting(now)
            self._become_free(now)

    # -- what follows from what ---------------------------------------------------------------------------

    def _advance(self, now: float) -> float:
        if self._pioneer is not None and now >= self._pioneer.sent_at + self._patience_s:
            if self._phase in (Phase.HELD, Phase.PROBE_DUE, Phase.PROBING):
                self._climb_from(now, self._pioneer.attempt)
            self._pioneer = None
        elif self._phase is Phase.HELD and now >= self._until:
            self._phase = Phase.PROBE_DUE
            self._until = now + self._terms.pause_max_ms / 1000
        elif self._phase is Phase.PROBING and now >= self._until:
            self._climb_from(now, self._tried)
        elif self._phase is Phase.PROBE_DUE and now >= self._until:
            # no letter came to probe with: nothing waits, and the first that comes is let through slowly
            self._climb_from(now, 0)
        if self._phase is Phase.RAMPING:
            rate_per_s = self._climb.rate_per_s(now)
            if rate_per_s is not None:
                return rate_per_s
            self._become_free(now)
        return 0.0

    def _count(self, now: float, attempt: int, released_at: float) -> bool:
        if not self._cohorts.died(now, released_at, within=BUCKETS):
            return False
        self._lately.append(attempt)
        return True

    def _outage(self, now: float) -> str | None:
        """What is told when letters die as they come."""
        terms, cohorts = self._terms, self._cohorts
        if cohorts.total < self._enough and now < self._look_at:
            return None
        self._look_at = now + self._bucket_s
        missing = terms.letters
        for span, span_ms in ((BUCKETS, terms.window_ms), (QUARTER, terms.window_ms // 4)):
            for share in cohorts.shares(now, span):
                if share.reaches(terms.share, terms.letters):
                    return _told(share, span_ms)
                missing = min(missing, max(terms.letters, round(terms.share * share.released)) - share.died)
        self._enough = cohorts.total + max(1, missing)
        return None

    def _needed(self, now: float) -> int:
        """Letters of a lower attempt than this do not count."""
        if self._long_free(now):
            self._lives = 0
        return self._lives

    def _remember(self, now: float, letter_id: str, attempt: int) -> None:
        self._probes[letter_id] = now, attempt
        while len(self._probes) > MAX_PROBES:
            del self._probes[next(iter(self._probes))]

    def _usual(self) -> int:
        """As which attempt letters died, but for the few that always do."""
        ranked = sorted(self._lately)
        return ranked[int(USUAL * (len(ranked) - 1))] if ranked else 0

    def _trip(self, now: float, why: str) -> None:
        if self._long_free(now):
            self._pause_s = self._terms.pause_ms / 1000
            self._patience_s = max(self._terms.probe_ms / 1000, self._patience_s / 2)
            self._probes.clear()
            self._pioneer = None
            self._pioneers = self._refuted = 0
            self._close(now, why)
        else:
            self._hold(now, why)

    def _hold(self, now: float, why: str) -> None:
        """Closed again before it was really open: twice the pause."""
        self._pause_s = min(self._pause_s * 2, self._terms.pause_max_ms / 1000)
        self._close(now, why)

    def _close(self, now: float, why: str) -> None:
        self._phase = Phase.HELD
        self._until = now + self._pause_s
        self._why = why
        self._refuted = max(self._refuted, self._usual())
        self._lives = 0

    def _climb_from(self, now: float, lives: int) -> None:
        """A letter of the attempt `lives` lived; 0: there was none to try with."""
        self._start_counting(now)
        self._phase = Phase.RAMPING
        self._lives = lives
        self._climb = Climb(now)
        self._cohorts.released(now)
        self._ramp_releases, self._ramp_deaths = 1, 0

    def _become_free(self, now: float) -> None:
        self._phase = Phase.FREE
        self._free_since = now

    def _long_free(self, now: float) -> bool:
        return self._phase is Phase.FREE and (
            self._free_since is None or now - self._free_since > self._terms.window_ms / 1000
        )

    def _start_counting(self, now: float) -> None:
        """What happened before says nothing about the letters that go from now on."""
        self._since = now
        self._cohorts.clear()
        self._lately.clear()
        self._enough = self._terms.letters
        self._look_at = 0.0


def _told(share: Share, span_ms: int) -> str:
    return f"{share.died} of {share.released} letters died again within {duration_text(span_ms)}"
