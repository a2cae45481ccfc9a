"""The retry budget: so many letters a minute go back, and no more. Pure; the time is an argument.

A budget is a bucket of tokens that fills smoothly. It holds at most a tenth of a minute's worth, so what was
not used in the night is not made up for in the morning, and a budget that was just made holds one: a service
that starts again and again cannot spend more by it. In any stretch of time a budget lets through at most its
rate times that stretch, plus one bucketful.

Whoever is over budget has done nothing wrong: its letters wait in the broker.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from deadletter.errors import UsageError


class Tally:
    """How many in the last `buckets` buckets of `bucket_s` seconds, the running one included.

    A count belongs to the bucket of its moment, not to a letter, so ten thousand letters a second cost what
    one does. The price is a window that ends up to one bucket early. A clock that stands still or goes back a
    little counts into the newest bucket.
    """

    __slots__ = ("_bucket_s", "_counts", "_newest", "_total")

    def __init__(self, *, bucket_s: float, buckets: int) -> None:
        self._bucket_s = bucket_s
        self._counts = [0] * buckets
        self._newest: int | None = None
        self._total = 0

    def add(self, now: float, count: int = 1) -> None:
        """So many happened now."""
        newest = self._advance(now)
        self._counts[newest % len(self._counts)] += count
        self._total += count

    def total(self, now: float) -> int:
        """How many are in the window."""
        self._advance(now)
        return self._total

    def _advance(self, now: float) -> int:
        bucket = int(now // self._bucket_s)
        if self._newest is None:
            self._newest = bucket
        elif bucket > self._newest:
            size = len(self._counts)
            for passed in range(self._newest + 1, min(bucket, self._newest + size) + 1):
                self._total -= self._counts[passed % size]
                self._counts[passed % size] = 0
            self._newest = bucket
        return self._newest


MINUTE_S: Final = 60.0
BURST_SHARE: Final = 0.1
"""Of a minute's worth: so much at once, at least one letter."""
LEAST_WAIT_S: Final = 0.001
_ENOUGH: Final = 1 - 1e-9
"""Sums of fractions fall a hair short of 1, and a letter should not wait another round for that."""


class Budget:
    """At most so many letters a minute."""

    __slots__ = ("_at", "_per_minute", "_tokens", "_used")

    def __init__(self, per_minute: float, now: float) -> None:
        self._per_minute = _checked(per_minute)
        self._tokens = 1.0
        self._at = now
        self._used = Tally(bucket_s=1.0, buckets=int(MINUTE_S))

    @property
    def per_minute(self) -> float:
        return self._per_minute

    @property
    def burst(self) -> float:
        """The most that may go at once."""
        return max(1.0, self._per_minute * BURST_SHARE)

    def take(self, now: float) -> bool:
        """Whether one more letter may go now; if so, it has gone."""
        self._fill(now)
        if self._tokens < _ENOUGH or not self._per_minute:
            return False
        self._tokens -= 1
        self._used.add(now)
        return True

    def left(self, now: float) -> int:
        """How many may go at once now."""
        self._fill(now)
        return int(self._tokens + 1 - _ENOUGH) if self._per_minute else 0

    def wait_s(self, now: float) -> float:
        """How long until the next one may; at most a minute, because the budget may have grown by then."""
        self._fill(now)
        if not self._per_minute:
            return MINUTE_S
        missing = 1 - self._tokens
        return 0.0 if missing <= 1 - _ENOUGH else self._until(missing)

    def resize(self, per_minute: float, now: float) -> None:
        """Another rate from now on. What was used stays used."""
        self._fill(now)
        self._per_minute = _checked(per_minute)
        self._tokens = min(self._tokens, self.burst)

    def used(self, now: float) -> int:
        """How many letters it let go in the last minute."""
        return self._used.total(now)

    def _until(self, missing: float) -> float:
        return min(MINUTE_S, max(LEAST_WAIT_S, missing / self._per_minute * MINUTE_S))

    def _fill(self, now: float) -> None:
        # a clock that went back gives nothing, and its way forward again was paid already
        passed_s = now - self._at
        if passed_s > 0:
            self._tokens = min(self.burst, self._tokens + passed_s * self._per_minute / MINUTE_S)
            self._at = now


def share_per_minute(traffic_per_s: float, share: float, floor_per_minute: float) -> float:
    """A share of what else is published to an origin, and always at least the floor.

    The share keeps retries from becoming most of what a sick origin gets; the floor lets the few letters of a
    quiet one go back at all.
    """
    return max(floor_per_minute, max(0.0, traffic_per_s) * MINUTE_S * share)


def portion(per_minute: float, instances: int) -> float:
    """What one of several instances may use, so that all of them together keep to the budget."""
    return per_minute / max(1, instances)


def _checked(per_minute: float) -> float:
    if not (isfinite(per_minute) and per_minute >= 0):
        raise UsageError(f"a budget: expected a number of letters a minute, 0 or more, got {per_minute!r}")
    return per_minute
