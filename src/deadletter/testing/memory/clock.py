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
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any, Final, Protocol

import aiosqlite.core

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


PATIENCE_S: Final = 5.0
MOST_S: Final = 30 * 86_400.0
"""A test that waits for what never comes, beside a loop that polls, would go on for ever."""


class _Jumping:
    """The changed parts of one event loop."""

    def __init__(
        self, loop: asyncio.BaseEventLoop, select: Callable[[float | None], list[Any]], **limits: float
    ) -> None:
        self._real_select = select
        self._real_executor = loop.run_in_executor
        self._patience_s = limits["patience_s"]
        self._grace_s = limits["grace_s"]
        self._now_s = loop.time()
        self._until_s = self._now_s + limits["most_s"]
        self._at_work = 0

    def time(self) -> float:
        return self._now_s

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:
        future = self._real_executor(executor, function, *arguments)
        self._began()
        future.add_done_callback(self._one_less)
        return future

    def _began(self) -> None:
        self._at_work += 1

    def _one_less(self, _future: object) -> None:
        self._at_work -= 1

    @contextmanager
    def databases(self) -> Iterator[None]:
        """SQLite works in threads that no loop started: what is asked of it counts as work, too."""
        began, ended = self._began, self._one_less

        class Counted(SimpleQueue[Any]):
            """The questions of one connection, each with the future of its answer."""

            def put_nowait(self, item: Any) -> None:
                if item[0] is not None:
                    began()
                    item[0].add_done_callback(ended)
                super().put_nowait(item)

        library: Any = aiosqlite.core  # every connection makes one of its queue
        real = library.SimpleQueue
        library.SimpleQueue = Counted
        try:
            yield
        finally:
            library.SimpleQueue = real

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return self._real_select(timeout)
        found = self._real_select(self._patience_s if self._at_work else self._grace_s)
        if found:
            return found
        if self._now_s + timeout > self._until_s:
            most_s, self._until_s = self._until_s, float("inf")
            raise UsageError(
                f"virtual time reached {most_s:.0f} s and the test still waits: what it waits for does not "
                "come, while something else sets timers for ever; say more with virtual_time(most_s=...)"
            )
        self._now_s += timeout
        return found


@contextmanager
def virtual_time(
    *,
    beginning: datetime = BEGINNING,
    patience_s: float = PATIENCE_S,
    grace_s: float = 0.0,
    most_s: float = MOST_S,
) -> Iterator[LoopClock]:
    """Make the running loop's time virtual: whoever sleeps for ten minutes wakes at once.

        async def test_the_fifth_retry() -> None:
            with virtual_time() as clock:
                broker = MemoryBroker()
                ...
                await clock.advance(600)

    Inside, the loop's clock stands still while anything can be done, and jumps to the next timer when nothing
    can. So `asyncio.sleep`, `asyncio.timeout` and the broker's TTLs all keep their order and their lengths
    and take no time. The running loop is changed in place, so this works in any test runner; it must be one
    of asyncio's own (uvloop keeps its clock to itself). Gives the clock, which starts at `beginning`.
    Afterwards time goes on at its real pace, from where it is.

    Time does not jump while a thread works that was started by the loop (`asyncio.to_thread`, a plain
    handler) or SQLite does (aiosqlite), but no longer than `patience_s`: a thread that hangs must not stop a
    timeout from coming. Other things outside the loop, a socket or a process, get `grace_s` of real time
    before every jump: by default none.
    """
    loop: Any = asyncio.get_running_loop()
    selector = getattr(loop, "_selector", None)
    if not isinstance(selector, selectors.BaseSelector) or not isinstance(loop, asyncio.BaseEventLoop):
        raise UsageError(
            f"virtual time needs one of asyncio's own event loops, got {type(loop).__module__}."
            f"{type(loop).__name__}; run this test without uvloop"
        )
    if "run_in_executor" in vars(loop):
        raise UsageError("this event loop's time is virtual already; use virtual_time() once")
    changed: Any = loop
    changing: Any = selector
    jumping = _Jumping(loop, selector.select, patience_s=patience_s, grace_s=grace_s, most_s=most_s)
    vars(loop).pop("time", None)  # what an earlier use left: see below
    real_time = loop.time
    changed.time = jumping.time
    changed.run_in_executor = jumping.run_in_executor
    changing.select = jumping.select
    try:
        with jumping.databases():
            yield LoopClock(beginning)
    finally:
        ahead_s = jumping.time() - real_time()
        del changing.select, changed.run_in_executor
        # A loop's time never goes back: timers would come late by all that was skipped.
        changed.time = lambda: real_time() + ahead_s
