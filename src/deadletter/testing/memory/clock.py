"""Whose time it is: the event loop's, or a test's own.

The broker asks a `Clock` for the time and to be called later, and nothing else. `LoopClock` follows the
running event loop: in an ordinary loop that is real time, inside `virtual_time()` it is virtual. A
`VirtualClock` stands still until somebody moves it, whatever the loop does: for a test that wants the
broker's time in its own hand and everybody else's as it is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from deadletter.errors import UsageError

BEGINNING: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""When virtual time begins, unless told otherwise."""
SETTLE_TURNS: Final = 50
"""Turns of the event loop in which everything that follows from one event has happened: a delivery, its
handling, a publish, the confirm and the ack are about ten."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """What a broker needs of time."""

    def time(self) -> float:
        """Seconds that only grow."""

    def now(self) -> datetime:
        """The time of day, for what is written on letters."""

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        """Call soon after `time()` has reached `when_s`."""


class LoopClock:
    """The running event loop's time."""

    def __init__(self, beginning: datetime | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._beginning = beginning or datetime.now(UTC)
        self._began_at = self._loop.time()

    def time(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return self._beginning + timedelta(seconds=self._loop.time() - self._began_at)

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        return self._loop.call_at(when_s, call)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, and what is due in it happen: in virtual time this takes no time."""
        await asyncio.sleep(seconds)
        await settle()


class _Due:
    """Something that is to happen at a time of a `VirtualClock`."""

    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Time that moves only by `advance`."""

    def __init__(self, beginning: datetime = BEGINNING) -> None:
        self._beginning = beginning
        self._time_s = 0.0
        self._due: list[tuple[float, int, _Due]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self._time_s

    def now(self) -> datetime:
        return self._beginning + timedelta(seconds=self._time_s)

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        due = _Due(call)
        heapq.heappush(self._due, (when_s, next(self._count), due))
        return due

    async def advance(self, seconds: float) -> None:
        """Let so much time pass: everything due in it happens in order, and what follows from each is
        waited for before the next."""
        if seconds < 0:
            raise UsageError(f"time goes forward; expected seconds of at least 0, got {seconds}")
        until_s = self._time_s + seconds
        await settle()
        while self._due and self._due[0][0] <= until_s:
            when_s, _, due = heapq.heappop(self._due)
            if not due.cancelled:
                self._time_s = max(self._time_s, when_s)
                due.call()
                await settle()
        self._time_s = until_s
        await settle()


async def settle(turns: int = SETTLE_TURNS) -> None:
    """Give the event loop so many turns, and take no time."""
    for _ in range(turns):
        await asyncio.sleep(0)
