"""The breaker: when everything that returns dies again, hold, probe with one letter, go faster and faster.

::

    free ──letters die again──▶ held ──pause──▶ probe due ──sent──▶ probing ──it lives──▶ ramping ──▶ free
                                 ▲                                     │                     │
                                 └──── twice the pause ◀── it dies ────┴── too many die ◀────┘

A release is not an outcome: that a letter was handled well is told by nobody, only that it died again. So
the breaker compares two counts, letters that died again and letters that were released, and both are kept
by the bucket (`tally`), not by the letter. Three things follow.

* **Deaths lag behind releases** by the time a handler takes. Deaths of a span are therefore compared with the
  most that was released in any span as long, in the last one and a half windows: a burst whose failures come
  late is not taken for an outage. (Deaths later than that are compared with what is left, and may hold the
  gate for one pause too many. That is the cheap mistake of the two.)
* **Deaths may outnumber releases**, because another instance released the letters. That is all of them.
* **Both the whole window and its last quarter are looked at**: after a good minute an outage would otherwise
  need most of another minute to be seen.

Only probes are known by their id, and only a few. One that dies after it was taken for a success closes the
gate again, also when letters flow freely already; the next probe is given as much time as that one took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from deadletter.core.duration import duration_text, rough_duration_text
from deadletter.core.guards.climb import Climb
from deadletter.core.guards.flow import FREE, Flow, Hold, Probe, Ramp
from deadletter.core.guards.phase import Phase
from deadletter.core.guards.tally import Tally

GUARD: Final = "breaker"
BUCKETS: Final = 60
"""Of one window."""
QUARTER: Final = BUCKETS // 4
LOOK_BACK: Final = BUCKETS * 3 // 2
"""How far back the releases may lie whose letters die now."""
MAX_PROBES: Final = 16
"""So many probes are known by their id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """Hold an origin's letters when at least `letters` of the last `window_ms` died again, `share` of all."""

    enabled: bool = True
    letters: int = 20
    share: float = 0.9
    window_ms: int = 60_000
    pause_ms: int = 5_000
    """Before the first probe; twice as long after each that fails, up to `pause_max_ms`."""
    pause_max_ms: int = 300_000
    probe_ms: int = 5_000
    """How long a probe may take to die again; after that it is taken for a success."""


class Breaker:
    """One origin's or group's. Told what was released and what died again, it says how letters may flow."""

    __slots__ = (
        "_bucket_s",
        "_climb",
        "_deaths",
        "_deaths_lately",
        "_enough",
        "_enough_lately",
        "_free_since",
        "_look_at",
        "_patience_s",
        "_pause_s",
        "_phase",
        "_probes",
        "_ramp_deaths",
        "_ramp_releases",
        "_releases",
        "_terms",
        "_until",
        "_why",
    )

    def __init__(self, terms: BreakerTerms) -> None:
        bucket_s = self._bucket_s = terms.window_ms / 1000 / BUCKETS
        self._terms = terms
        self._phase = Phase.FREE
        self._releases = Tally(bucket_s=bucket_s, buckets=LOOK_BACK)
        self._deaths = Tally(bucket_s=bucket_s, buckets=BUCKETS)
        self._deaths_lately = Tally(bucket_s=bucket_s, buckets=QUARTER)
        self._enough = self._enough_lately = float(terms.letters)
        """So many deaths, in the window and lately, are an outage; worked out about once a bucket."""
        self._look_at = 0.0
        self._free_since: float | None = None
        """None: it never tripped."""
        self._pause_s = terms.pause_ms / 1000
        self._patience_s = terms.probe_ms / 1000
        self._until = 0.0
        self._why = ""
        self._probes: dict[str, float] = {}
        self._climb = Climb(0.0)
        self._ramp_releases = self._ramp_deaths = 0

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def why(self) -> str:
        """Why it last tripped."""
        return self._why

    def flow(self, now: float) -> Flow:
        """How letters may go now."""
        if self._phase is Phase.FREE:
            return FREE
        rate_per_s = self._advance(now)
        match self.phase:
            case Phase.FREE:
                return FREE
            case Phase.HELD:
                return Hold(until=self._until, guard=GUARD, why=self._why)
            case Phase.PROBE_DUE:
                return Probe(guard=GUARD, why=self._why)
            case Phase.PROBING:
                return Hold(until=self._until, guard=GUARD, why="waiting whether the probe dies again")
            case Phase.RAMPING:
                return Ramp(rate_per_s=rate_per_s, guard=GUARD, why="the probe did not die again")
            case _:
                assert_never(self.phase)

    def released(self, now: float, letters: int = 1) -> None:
        """So many letters went back to their origin; a probe is told by `probe_sent` alone."""
        self._releases.add(now, letters)
        if self._phase is Phase.RAMPING:
            self._ramp_releases += letters

    def probe_sent(self, now: float, letter_id: str) -> None:
        """The one letter went. Nothing happens where no probe was asked for."""
        self._advance(now)
        if self._phase is not Phase.PROBE_DUE:
            return
        self._probes[letter_id] = now
        while len(self._probes) > MAX_PROBES:
            del self._probes[next(iter(self._probes))]
        self._phase = Phase.PROBING
        self._until = now + self._patience_s

    def died_again(self, now: float, letter_id: str) -> None:
        """A letter that had been released is dead again, whoever released it and however long ago."""
        if not self._terms.enabled:
            return
        self._advance(now)
        if self._probes and self._is_probe(now, letter_id):
            return
        match self._phase:
            case Phase.FREE:
                self._deaths.add(now)
                self._deaths_lately.add(now)
                if (why := self._outage(now)) is not None:
                    self._trip(now, why)
            case Phase.RAMPING:
                self._deaths.add(now)
                self._deaths_lately.add(now)
                self._ramp_deaths += 1
                if self._ramp_deaths >= self._terms.share * self._ramp_releases:
                    self._hold(now, f"{self._ramp_deaths} of {self._ramp_releases} died again on the ramp")
                elif self._ramp_deaths >= self._terms.share / 2 * self._ramp_releases:
                    self._climb.linger(now)
            case Phase.HELD | Phase.PROBE_DUE | Phase.PROBING:
                pass  # on its way since before; the probe tells how things stand now
            case _:
                assert_never(self._phase)

    def trip(self, now: float, why: str) -> None:
        """Hold: somebody else saw that letters die again. Nothing happens where it is held already."""
        if self._terms.enabled and self._phase in (Phase.FREE, Phase.RAMPING):
            self._trip(now, why)

    def open(self, now: float) -> None:
        """Let everything go: somebody else saw that letters live, or a person says so."""
        if self._phase is not Phase.FREE:
            self._probes.clear()
            self._start_counting()
            self._become_free(now)

    # -- what follows from what ---------------------------------------------------------------------------

    def _advance(self, now: float) -> float:
        """What the time alone changes; on a ramp, how fast it is."""
        if self._phase is Phase.HELD and now >= self._until:
            self._phase = Phase.PROBE_DUE
            self._until = now + self._terms.pause_max_ms / 1000
        elif self._phase is Phase.PROBING and now >= self._until:
            self._climb_from(now)
        elif self._phase is Phase.PROBE_DUE and now >= self._until:
            # no letter came to probe with: nothing waits, and the first that comes is let through slowly
            self._climb_from(now)
        if self._phase is Phase.RAMPING:
            rate_per_s = self._climb.rate_per_s(now)
            if rate_per_s is not None:
                return rate_per_s
            self._become_free(now)
        return 0.0

    def _outage(self, now: float) -> str | None:
        """What is told when letters die as they come."""
        terms = self._terms
        deaths, lately = self._deaths.total(now), self._deaths_lately.total(now)
        if deaths < terms.letters:
            return None
        if now >= self._look_at or deaths >= self._enough or lately >= self._enough_lately:
            self._look_at = now + self._bucket_s
            released = self._releases.most(now, BUCKETS)
            self._enough = max(terms.letters, terms.share * released)
            if deaths >= self._enough:
                return _told(deaths, released, terms.window_ms)
            # one bucket more than the deaths have: the two need not begin at the same moment of a bucket
            released = self._releases.most(now, QUARTER + 1)
            self._enough_lately = max(terms.letters, terms.share * released)
            if lately >= self._enough_lately:
                return _told(lately, released, terms.window_ms // 4)
        return None

    def _is_probe(self, now: float, letter_id: str) -> bool:
        sent_at = self._probes.get(letter_id)
        if sent_at is None or self._long_free(now):
            return False
        del self._probes[letter_id]
        took_s = now - sent_at
        if took_s > self._patience_s:
            self._patience_s = min(self._terms.pause_max_ms / 1000, took_s * 1.5)
        if self._phase in (Phase.PROBING, Phase.RAMPING, Phase.FREE):
            self._hold(now, f"the probe died again after {rough_duration_text(round(took_s * 1000))}")
        return True

    def _trip(self, now: float, why: str) -> None:
        if self._long_free(now):
            self._pause_s = self._terms.pause_ms / 1000
            self._patience_s = max(self._terms.probe_ms / 1000, self._patience_s / 2)
            self._probes.clear()
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

    def _climb_from(self, now: float) -> None:
        self._start_counting()
        self._phase = Phase.RAMPING
        self._climb = Climb(now)
        self._releases.add(now)
        self._ramp_releases, self._ramp_deaths = 1, 0

    def _become_free(self, now: float) -> None:
        self._phase = Phase.FREE
        self._free_since = now

    def _long_free(self, now: float) -> bool:
        return self._phase is Phase.FREE and (
            self._free_since is None or now - self._free_since > self._terms.window_ms / 1000
        )

    def _start_counting(self) -> None:
        """What happened before says nothing about the letters that go from now on."""
        self._releases.clear()
        self._deaths.clear()
        self._deaths_lately.clear()
        self._enough = self._enough_lately = float(self._terms.letters)
        self._look_at = 0.0


def _told(deaths: int, releases: int, span_ms: int) -> str:
    return f"{deaths} of {max(deaths, releases)} letters died again within {duration_text(span_ms)}"
