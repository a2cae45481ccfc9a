"""The growth alarm: more letters of one id than there should be.

Something between us and the application makes copies when one letter of one id and attempt comes out of the
dead-letter queues again and again: a fanout shared by two of them, a republisher. Retrying such letters makes
2, 4, 8, 16 of one. Not every letter seen twice is a copy of that kind:

* one that the broker **delivers again** after a crash is the same letter, and the broker says so;
* **equal letters** have equal ids, because an id is derived from what a letter holds. When they first die
  (attempt 0) they are only counted; later each of them may have the copies one letter may have.

Ask once per letter, where it is taken from a dead-letter queue. What is remembered is bounded: a number per
letter, in two generations of which the older one is forgotten; what was seen more than once is remembered
longer, because it is rare.
"""

from __future__ import annotations

from typing import Final

from deadletter.errors import UsageError

REMEMBER: Final = 100_000


class Growth:
    """Counts letters by origin, id and attempt. `remember`: of so many letters, at least."""

    __slots__ = ("_copies", "_old", "_older_twins", "_remember", "_twins", "_young")

    def __init__(self, copies: int, remember: int = REMEMBER) -> None:
        if copies < 1 or remember < 1:
            raise UsageError(
                f"the growth alarm: expected at least one copy and one letter, got {copies} and {remember}"
            )
        self._copies = copies
        self._remember = remember
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._twins: dict[int, int] = {}
        """How many, where it is more than one."""
        self._older_twins: dict[int, int] = {}

    def seen(self, letter_id: str, attempt: int, *, redelivered: bool, origin: str) -> int | None:
        """How many there are of this letter when that is more than allowed, else None."""
        if redelivered:
            return None
        # the hash and not the name: a tenth of the memory, and two letters in 10^13 would be taken for one
        key = hash((letter_id, attempt, origin))
        if key in self._young or key in self._old:
            return self._again(key, letter_id, origin)
        self._young.add(key)
        if len(self._young) >= self._remember:
            self._old, self._young = self._young, set()
        return None

    def _again(self, key: int, letter_id: str, origin: str) -> int | None:
        count = self._count(key) + 1
        self._twins[key] = count
        if len(self._twins) >= self._remember:
            self._older_twins, self._twins = self._twins, {}
        # at attempt 0 these are the same count, and a letter is never more than itself
        equals = self._count(hash((letter_id, 0, origin)))
        return count if count > self._copies * equals else None

    def _count(self, key: int) -> int:
        return self._twins.get(key) or self._older_twins.get(key, 1)
