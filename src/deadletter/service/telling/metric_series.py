"""The values of a metric while they are counted: by their labels, and bounded.

A metric has at most `LABEL_SETS` series; what comes later goes into one whose labels say `other` (an outcome
stays an outcome), and `overflowed` says that it happened. What a queue that is gone has counted is added to
`other`, so that sums never go back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from deadletter.service.telling.metric_list import Definition, Labels

LABEL_SETS: Final = 2_000
"""The most series of one metric that are told apart."""
_KEPT_BESIDE: Final = 18_000
"""Of a gauge so many more are remembered, to be told as one."""
OTHER: Final = "other"


class Series:
    """One metric's values by their labels, bounded."""

    def __init__(self, metric: Definition) -> None:
        self.overflowed: int = 0
        self._metric = metric
        self._other = (*metric.labels[: metric.kept], *[OTHER] * (len(metric.labels) - metric.kept))
        self._told: dict[Labels, float] = {}
        self._rest: dict[Labels, float] = {}
        """Of a counter: by the labels of `other`. Of a gauge: by their own."""

    def add(self, key: Labels, number: float) -> None:
        if key in self._told:
            self._told[key] += number
        elif len(self._told) < LABEL_SETS:
            self._told[key] = number
        else:
            self.overflowed += 1
            self._fold(key, number)

    def fold(self, gone: Callable[[Labels], bool]) -> None:
        """Add the counters of what is gone to `other`."""
        for key in [key for key in self._told if gone(key)]:
            self._fold(key, self._told.pop(key))

    def _fold(self, key: Labels, number: float) -> None:
        other = (*key[: self._metric.kept], *self._other[self._metric.kept :])
        self._rest[other] = self._rest.get(other, 0) + number

    def set(self, key: Labels, value: float) -> None:
        if key in self._told or len(self._told) < LABEL_SETS:
            self._told[key] = value
            self._rest.pop(key, None)
            return
        self.overflowed += 1
        if key in self._rest or len(self._rest) < _KEPT_BESIDE:
            self._rest[key] = value

    def remove(self, key: Labels) -> None:
        self._told.pop(key, None)
        self._rest.pop(key, None)

    def told(self) -> dict[Labels, float]:
        together = dict(self._told)
        if self._metric.type == "counter":
            for key, value in self._rest.items():
                together[key] = together.get(key, 0) + value  # a queue may be called `other`
        elif self._rest:
            values = [*self._rest.values(), *([together[self._other]] if self._other in together else [])]
            together[self._other] = max(values) if self._metric.together == "max" else sum(values)
        return together


class Histogram:
    """How many values were up to each bound, and their sum."""

    def __init__(self, metric: Definition) -> None:
        self.counts: list[int] = [0] * (len(metric.buckets) + 1)
        self.sum: float = 0.0
        self._bounds = metric.buckets

    def observe(self, value: float, number: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += number
        self.sum += max(value, 0.0) * number
