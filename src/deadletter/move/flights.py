"""Which publishes are under way, and which delivery each of them will settle. Pure.

Publishes of a channel count 1, 2, 3, … A confirm names one, or all up to one; they come out of order. A
returned publish is still confirmed afterwards (the broker took responsibility, and gave it back), so a
return is remembered until its confirm comes: only then is the outcome known.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Landing(Enum):
    SAFE = "confirmed"
    UNROUTABLE = "unroutable"
    REFUSED = "refused"


class Flights(Generic[_T]):
    """What is in the air, by publish number."""

    __slots__ = ("_air", "_returned")

    def __init__(self) -> None:
        self._air: dict[int, _T] = {}
        self._returned: set[int] = set()

    def __len__(self) -> int:
        return len(self._air)

    @property
    def oldest(self) -> int | None:
        """The number of the publish that waits longest."""
        return next(iter(self._air), None)

    def waiting(self) -> Iterator[tuple[int, _T]]:
        """Those that were not returned, the oldest first."""
        return ((number, cargo) for number, cargo in self._air.items() if number not in self._returned)

    def launch(self, number: int, cargo: _T) -> None:
        self._air[number] = cargo

    def returned(self, number: int) -> bool:
        """The broker found no queue for this publish; False when it is none of ours."""
        if number not in self._air:
            return False
        self._returned.add(number)
        return True

    def land(self, number: int, *, multiple: bool, ok: bool) -> list[tuple[_T, Landing]]:
        """A confirm or a refusal came: what it settles. A number we do not know settles nothing."""
        air = self._air
        if not multiple:
            if number not in air:
                return []
            safe = ok and not self._returned
            return [(air.pop(number), Landing.SAFE if safe else self._outcome(number, ok=ok))]
        numbers: list[int] = []
        for waiting in air:  # in the order of publishing
            if waiting > number:
                break
            numbers.append(waiting)
        if ok and not self._returned:
            return [(air.pop(found), Landing.SAFE) for found in numbers]
        return [(air.pop(found), self._outcome(found, ok=ok)) for found in numbers]

    def _outcome(self, number: int, *, ok: bool) -> Landing:
        if number in self._returned:
            self._returned.remove(number)
            return Landing.UNROUTABLE
        return Landing.SAFE if ok else Landing.REFUSED

    def crash(self) -> list[_T]:
        """The connection is gone: everything in the air, fate unknown."""
        lost = list(self._air.values())
        self._air.clear()
        self._returned.clear()
        return lost
