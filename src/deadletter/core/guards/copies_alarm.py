"""The growth alarm: more letters of one id than there should be.

Something between us and the application makes copies when one letter of one id and attempt comes out of the
dead-letter queues again and again: a fanout shared by two of them, a republisher. Retrying such letters makes
2, 4, 8, 16 of one. Not every letter seen twice is a copy of that kind, and the broker does not tell them
apart: on RabbitMQ 4 a dead letter is marked `redelivered` when it is delivered for the first time. So:

* a letter that was taken, given back and taken again (a sweep that left it, a lost connection) is taken in
  another **pass**: letters are counted within one pass over one queue, and of several passes the most counts;
* **equal letters** have equal ids, because an id is derived from what a letter holds. How many went home as
  their first attempt is known, for it was here that they went; each of them may have `copies`.

Say `went` of each letter that goes home, and ask `came` once for each that is taken from a dead-letter queue.
What is remembered is bounded: two generations, of which the older one is forgotten.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deadletter.errors import UsageError

REMEMBER: Final = 50_000


class Came(NamedTuple):
    """What a letter that came back tells."""

    new: bool
    """No other pass, and no other queue, showed as many of it: one more has died."""
    copies: int | None
    """How many there are of it when that is more than allowed."""


class _Counts:
    """Numbers by a hash: a tenth of the memory of names, and two of 10^13 letters would be taken for one."""

    __slots__ = ("_old", "_remember", "_young")

    def __init__(self, remember: int) -> None:
        self._remember = remember
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def get(self, key: int) -> int:
        return self._young.get(key) or self._old.get(key, 0)

    def put(self, key: int, number: int) -> None:
        self._young[key] = number
        if len(self._young) >= self._remember:
            self._old, self._young = self._young, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


_ONCE: Final = Came(new=True, copies=None)
"""The answer almost every time, made once."""


class CopiesAlarm:
    """Counts letters by origin, id and attempt. `remember`: of so many letters, at least."""

    __slots__ = ("_copies", "_equals", "_first", "_here", "_most", "_seen")

    def __init__(self, copies: int, remember: int = REMEMBER) -> None:
        if copies < 1 or remember < 1:
            raise UsageError(
                f"the growth alarm: expected at least one copy and one letter, got {copies} and {remember}"
            )
        self._copies = copies
        self._seen = _Counts(remember)
        """In which pass a letter was seen first, and one."""
        self._here = _Counts(remember)
        """How often in one pass, where it was seen before."""
        self._most = _Counts(remember)
        """How often in the pass that showed the most, where that is more than once."""
        self._first = _Counts(remember)
        """The attempt with which a letter first went home, and one."""
        self._equals = _Counts(remember)
        """How many went with it, where it is more than one."""

    def went(self, letter_id: str, attempt: int, *, origin: str) -> None:
        """A letter of this id goes home."""
        key = hash((letter_id, origin))
        first = self._first.get(key)
        if not first:
            self._first.put(key, attempt + 1)
        elif first == attempt + 1:
            self._equals.put(key, (self._equals.get(key) or 1) + 1)

    def came(self, letter_id: str, attempt: int, *, origin: str, seen_in: int) -> Came:
        """One was taken; `seen_in` is the number of the pass, another for each pass over each queue."""
        key = hash((letter_id, attempt, origin))
        first = self._seen.get(key)
        if not first:
            self._seen.put(key, seen_in + 1)
            return _ONCE
        here = hash((key, seen_in))
        count = (self._here.get(here) or (first == seen_in + 1)) + 1
        self._here.put(here, count)
        new = count > (self._most.get(key) or 1)
        if new:
            self._most.put(key, count)
        equals = self._equals.get(hash((letter_id, origin))) or 1
        return Came(new, count if count > self._copies * equals else None)
