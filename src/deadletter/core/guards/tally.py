"""Counting over a sliding window, by buckets: what happened in the last minute, in a fixed amount of memory.

A count belongs to the bucket of its moment, not to a letter, so ten thousand letters a second cost what one
does. The price is a window that ends up to one bucket early. A clock that stands still or goes back a little
counts into the newest bucket.
"""

from __future__ import annotations


class Tally:
    """How many in the last `buckets` buckets of `bucket_s` seconds, the running one included."""

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
