"""Letters by the moment they were released: how many went then, and how many of those died again.

A letter that dies again carries the moment of its release, so a death is counted where its release was
counted, however late it comes. The share of one cohort is then a share of the same letters: failures of a
burst that come late, or all at once, do not look like more than they are.

What was just released cannot have died yet. Two ends are therefore looked at:

* up to the newest cohort of which a letter died: everything dies after about the same time;
* up to what had as long as the slowest of the last minute needed to die: some die late, unless of what went
  since hardly any died.

Counts are kept by the bucket, so ten thousand letters a second cost what one does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AT_ONCE: Final = 4
"""Where some die late, one of so many dies soon: else those that die late are all that die."""


class Share(NamedTuple):
    """So many of so many released letters died again. Others may have released some: never less than died."""

    died: int
    released: int

    def reaches(self, share: float, least: int) -> bool:
        return self.died >= max(least, share * self.released)


class Cohorts:
    """Of the last `buckets` buckets of `bucket_s` seconds."""

    __slots__ = ("_bucket_s", "_died", "_front", "_lag", "_lag_at", "_newest", "_released", "total")

    def __init__(self, *, bucket_s: float, buckets: int) -> None:
        self._bucket_s = bucket_s
        self._released = [0] * buckets
        self._died = [0] * buckets
        self._newest: int | None = None
        self._front = 0
        """The newest bucket of which a letter died."""
        self._lag = self._lag_at = 0
        """In buckets: how long the slowest took to die, and when that was noted."""
        self.total: int = 0
        """Deaths that are remembered."""

    def released(self, now: float, letters: int = 1) -> None:
        """So many go now."""
        newest = self._advance(now)
        self._released[newest % len(self._released)] += letters

    def died(self, now: float, released_at: float, *, within: int) -> bool:
        """One of those that went at `released_at`; False: that is too long ago to tell anything.

        `within`: for so many buckets the slowest is remembered.
        """
        newest = self._advance(now)
        bucket = min(int(released_at // self._bucket_s), newest)
        if bucket <= newest - len(self._died):
            return False
        self._died[bucket % len(self._died)] += 1
        self.total += 1
        self._front = max(self._front, bucket)
        lag = newest - bucket
        if lag >= self._lag or newest - self._lag_at > within:
            self._lag, self._lag_at = lag, newest
        return True

    def shares(self, now: float, span: int) -> tuple[Share, ...]:
        """Of `span` neighbouring buckets, by the ends that tell something."""
        newest = self._advance(now)
        late = newest - self._lag
        # one bucket more than the deaths have: a letter and its release may be noted on two sides of a second
        found = self._between(self._front - span, self._front + 1)
        if late >= self._front:
            return (found,)
        settled, since = self._between(late - span, late + 1), self._between(late + 1, newest)
        if since.died * AT_ONCE < since.released:
            return (found,)  # what went since lives: those were held up somewhere, and died of it
        return found, settled

    def _between(self, before: int, last: int) -> Share:
        assert self._newest is not None
        size = len(self._died)
        oldest = max(before, self._newest - size) + 1
        places = [bucket % size for bucket in range(oldest, min(last, self._newest) + 1)]
        died = sum(self._died[place] for place in places)
        return Share(died, max(died, sum(self._released[place] for place in places)))

    def clear(self) -> None:
        """As if nothing had happened."""
        self._released = [0] * len(self._released)
        self._died = [0] * len(self._died)
        self._lag = self.total = 0

    def _advance(self, now: float) -> int:
        bucket = int(now // self._bucket_s)
        if self._newest is None:
            self._newest = self._front = self._lag_at = bucket
        elif bucket > self._newest:
            size = len(self._died)
            for passed in range(self._newest + 1, min(bucket, self._newest + size) + 1):
                place = passed % size
                self.total -= self._died[place]
                self._released[place] = self._died[place] = 0
            self._newest = bucket
        return self._newest
