"""Virtual time: everything in its order and at its hour, and no time passes.

About `testing.memory.clock`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from pathlib import Path

import aiosqlite
import pytest

from deadletter.errors import UsageError
from deadletter.testing.memory import VirtualClock, virtual_time
from deadletter.testing.memory.clock import BEGINNING

LONG_S = 100_000.0
"""A real wait of this length would end the test run, not the test."""


# -- a clock of one's own -----------------------------------------------------------------------------------
async def test_a_virtual_clock_runs_what_is_due_in_order() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []
    for name, when_s in (("c", 3.0), ("a", 1.0), ("b", 1.0), ("d", 9.0)):
        clock.call_at(when_s, lambda name=name: seen.append((name, clock.time())))  # type: ignore[misc]
    await clock.advance(5)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 3.0)]
    assert clock.time() == 5.0
    assert clock.now() - BEGINNING == timedelta(seconds=5)
    await clock.advance(4)
    assert seen[-1] == ("d", 9.0)


async def test_what_follows_from_one_thing_happens_before_the_next() -> None:
    clock = VirtualClock()
    seen: list[str] = []

    async def follow() -> None:
        await asyncio.sleep(0)
        seen.append("follows")
        clock.call_at(clock.time() + 1, lambda: seen.append("chained"))

    tasks: list[asyncio.Task[None]] = []
    clock.call_at(1, lambda: tasks.append(asyncio.get_running_loop().create_task(follow())))
    clock.call_at(2.5, lambda: seen.append("last"))
    await clock.advance(3)
    assert seen == ["follows", "chained", "last"]


async def test_a_cancelled_timer_does_not_come() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    clock.call_at(1, lambda: seen.append("no")).cancel()
    await clock.advance(2)
    assert seen == []


async def test_time_goes_forward() -> None:
    with pytest.raises(UsageError, match="forward"):
        await VirtualClock().advance(-1)


# -- a whole loop -------------------------------------------------------------------------------------------
async def test_sleeps_and_timeouts_keep_their_order_and_length() -> None:
    seen: list[tuple[str, float]] = []
    with virtual_time() as clock:
        began = clock.time()

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, clock.time() - began))

        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper("late", LONG_S))
            group.create_task(sleeper("early", 600))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1_000):
                    await asyncio.Event().wait()
            seen.append(("timeout", clock.time() - began))
        assert clock.now() - BEGINNING == timedelta(seconds=LONG_S)
    assert [name for name, _ in seen] == ["early", "timeout", "late"]
    assert [when for _, when in seen] == pytest.approx([600, 1_000, LONG_S])


async def test_work_takes_no_virtual_time() -> None:
    with virtual_time() as clock:
        before = clock.time()
        time.sleep(0.01)  # noqa: ASYNC251 -- real work of a handler
        await asyncio.sleep(0)
        assert clock.time() == before


async def test_a_thread_is_waited_for_before_time_jumps() -> None:
    with virtual_time() as clock:
        before = clock.time()
        async with asyncio.timeout(1):
            await asyncio.to_thread(time.sleep, 0.1)
        assert clock.time() == before


async def test_sqlite_is_waited_for_before_time_jumps(tmp_path: Path) -> None:
    with virtual_time() as clock:
        before = clock.time()
        async with asyncio.timeout(1), aiosqlite.connect(tmp_path / "some.db") as database:
            await database.create_function("nap", 0, lambda: time.sleep(0.2))
            await database.execute("SELECT nap()")
        assert clock.time() == before


async def test_a_thread_that_hangs_does_not_stop_a_timeout() -> None:
    with virtual_time(patience_s=0.05):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LONG_S):
                await asyncio.to_thread(time.sleep, 0.3)
        await asyncio.sleep(0)


async def test_the_outside_world_may_be_given_a_grace() -> None:
    loop = asyncio.get_running_loop()
    with virtual_time(grace_s=5.0) as clock:
        before = clock.time()
        heard = asyncio.Event()
        timer = asyncio.create_task(asyncio.sleep(LONG_S))
        await asyncio.sleep(0)
        threading.Timer(0.05, lambda: loop.call_soon_threadsafe(heard.set)).start()
        await heard.wait()
        assert clock.time() == before
        timer.cancel()


async def test_a_test_that_waits_for_ever_ends() -> None:
    ticks = 0

    async def poll() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(10)

    async def whole() -> None:
        with virtual_time(most_s=1_000):
            polling = asyncio.create_task(poll())
            try:
                await asyncio.Event().wait()
            finally:
                polling.cancel()

    def run() -> None:
        with asyncio.Runner() as runner:
            runner.run(whole())

    with pytest.raises(UsageError, match="virtual time reached"):
        await asyncio.to_thread(run)
    assert 90 <= ticks <= 110


async def test_afterwards_time_goes_on_from_where_it_is() -> None:
    loop = asyncio.get_running_loop()
    with virtual_time() as clock:
        await clock.advance(LONG_S)
        inside = loop.time()
    assert loop.time() >= inside
    async with asyncio.timeout(60):
        await asyncio.sleep(0.01)
    assert loop.time() - inside < LONG_S
    with virtual_time() as clock:
        await clock.advance(LONG_S)
        assert loop.time() - inside >= LONG_S


async def test_virtual_time_is_not_for_twice_at_once() -> None:
    with virtual_time(), pytest.raises(UsageError, match="already"), virtual_time():
        pass


def test_a_loop_with_a_clock_of_its_own_is_refused() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        with pytest.raises(UsageError, match="uvloop"), virtual_time():
            pass

    uvloop.run(main())
