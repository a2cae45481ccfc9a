"""How fast, and how long to wait: the two clocks of a passage. Pure; the time is an argument.

`Pace` is a bucket of tokens: letters go at a rate, with at most a tenth of a second's worth at once.
`Overdue` notices a publish that nobody confirms. It does not keep the time of every publish, only a mark a
second: which number was the last one then.
"""

from __future__ import annotations

from collections import deque
from typing import Final

BURST_S: Final = 0.1
MARK_S: Final = 1.0


class Pace:
    """Letters per second."""

    __slots__ = ("_at", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._tokens = 1.0
        self._at = now

    def may_go(self, now: float) -> bool:
        """Whether one more letter may go now; if so, it has gone."""
        most = max(1.0, self._rate_per_s * BURST_S)
        self._tokens = min(most, self._tokens + (now - self._at) * self._rate_per_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    @property
    def wait_s(self) -> float:
        """How long until the next one may."""
        return max(0.001, (1 - self._tokens) / self._rate_per_s)


class Overdue:
    """Whether the oldest publish under way has waited too long."""

    __slots__ = ("_marks", "_patience_s")

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._marks: deque[tuple[float, int]] = deque()

    def reset(self) -> None:
        """The broker said it does not listen: the time until it does again is not counted."""
        self._marks.clear()

    def look(self, now: float, *, published: int, oldest: int | None) -> bool:
        """`published` is the number of the last publish, `oldest` of the one that waits longest."""
        if not self._marks or now - self._marks[-1][0] >= MARK_S:
            self._marks.append((now, published))
        while self._marks and (oldest is None or self._marks[0][1] < oldest):
            self._marks.popleft()
        return bool(self._marks) and now - self._marks[0][0] > self._patience_s
