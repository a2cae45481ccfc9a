"""Canaries and real consumers: one fails, one fails now and then, one hangs, one is slow.

The claim: a broken consumer gets eleven letters and no more, a good one gets all of them, its queue never
holds more than the room, and whatever was not sent is home and open again.

About `core.replaying.replay_pace`, `service.replaying.replay_consignment`, `service.replaying.origin_counts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.replaying import (
    Ledger,
    begun,
    changed,
    letter_id,
    open_ids,
    parked_letter,
    replay_of,
    stock,
    until_replay,
)
from tests.serving import Application, served, until_empty
from tests.storekeeping import settings

from deadletter.amqp.channel import Delivery
from deadletter.core.replaying.replay_pace import Auto, Canary, ReplayPace
from deadletter.core.replaying.replay_states import ReplayState

pytestmark = pytest.mark.replays

COUNT = 1_000


class Fails(Ledger):
    """Fails for those whose turn it is."""

    def __init__(self, *, works_first: int = 0, every: int = 1) -> None:
        super().__init__()
        self._works_first, self._every = works_first, every

    def take(self, delivery: Delivery, times: int) -> bool:
        super().take(delivery, times)
        turn = self.got.total()
        return turn <= self._works_first or turn % self._every != 0


@pytest.mark.parametrize(("kind", "works_first", "most"), [("classic", 0, 1), ("quorum", 1, 11)])
async def test_one_that_always_fails_gets_eleven_at_most(
    vhost: Vhost, tmp_path: Path, url: str, kind: str, works_first: int, most: int
) -> None:
    await stock(url, vhost.name, [parked_letter(number) for number in range(COUNT)])
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        ledger = Fails(works_first=works_first)
        await app.consume("orders", ledger.take)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=Canary(wait_s=2.0), outcome_ms=4_000)
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
            await until_empty(app, "orders.dlq")
    assert view.state is ReplayState.STOPPED
    assert 1 <= ledger.got.total() <= most
    worked = min(works_first, ledger.got.total())
    assert view.counts.returned == ledger.got.total() - worked
    assert view.counts.let_go == COUNT - ledger.got.total()
    home = await open_ids(url)
    assert len(home) == COUNT - worked, "each of them once"
    done = list(ledger.got)[:worked]
    assert set(home) == {letter_id(number) for number in range(COUNT)} - set(done)


async def test_one_that_fails_for_two_in_a_hundred_goes_through(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number) for number in range(COUNT)])
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        ledger = Fails(every=50)
        await app.consume("orders", ledger.take)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=Canary(wait_s=1.0), outcome_ms=6_000)
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
    assert view.state is ReplayState.DONE, view.told
    assert len(ledger.got) == ledger.got.total() == COUNT
    assert (view.counts.returned, view.counts.quiet) == (COUNT // 50, COUNT - COUNT // 50)
    assert len(await open_ids(url)) == COUNT // 50


@pytest.mark.parametrize(
    ("kind", "prefetch", "wait_s"), [("classic", 0, 15.0), ("quorum", 1, 15.0), ("quorum", 0, 0.5)]
)
async def test_one_that_hangs_makes_it_wait_and_cancel_brings_the_rest_home(
    vhost: Vhost, tmp_path: Path, kind: str, prefetch: int, wait_s: float
) -> None:
    """It takes letters and acks none: one of them, or (prefetch 0) whatever there is. How many it has in hand
    is told by the broker up to five seconds late, which may be later than a step waits."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number) for number in range(COUNT)])
    ledger = Ledger()
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        hanging = await app.connection.channel()
        await hanging.qos(prefetch)
        await hanging.consume("orders", ledger.note, lambda: None)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=Canary(wait_s=wait_s), outcome_ms=20_000)
            await until_replay(url, replay, lambda told: "not drained" in told.told)
            await asyncio.sleep(4)
            view = await replay_of(url, replay)
            assert view.state is ReplayState.RUNNING
            assert view.counts.gone <= 11
            assert "not drained" in view.told
            await changed(url, lambda replays: replays.cancel(replay, who="ann"))
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
            await app.until(lambda: len(ledger.got) == (prefetch or view.counts.gone), 120, "those it took")
            in_queue = await app.depth("orders")
    assert view.state is ReplayState.CANCELLED
    assert view.counts.gone + view.counts.let_go == COUNT
    assert len(ledger.got) + in_queue == view.counts.gone
    home = await open_ids(url)
    assert len(home) == view.counts.let_go
    assert not set(home) & set(ledger.got)


class DepthSeen:
    """The most that anybody outside saw in a queue."""

    def __init__(self) -> None:
        self.most = 0
        self.looks = 0


@asynccontextmanager
async def watching(app: Application, queue: str) -> AsyncIterator[DepthSeen]:
    """Looks every few milliseconds, on a channel of its own."""
    seen = DepthSeen()
    channel = await app.connection.channel()

    async def look() -> None:
        while True:
            found = await channel.declare_queue(queue, passive=True)
            seen.most = max(seen.most, found.message_count)
            seen.looks += 1
            await asyncio.sleep(0.01)

    looking = asyncio.ensure_future(look())
    try:
        yield seen
        assert not looking.done(), looking
    finally:
        looking.cancel()
        await asyncio.wait({looking})


@pytest.mark.parametrize(
    ("kind", "pace"),
    [("quorum", Auto(room=30)), ("classic", Canary(room=30, wait_s=0.5))],
    ids=["auto", "canary"],
)
async def test_one_that_is_slow_sets_the_pace(
    vhost: Vhost, tmp_path: Path, kind: str, pace: ReplayPace
) -> None:
    """A letter at a time, and time for each: its queue never holds more than the room."""
    url, count = f"sqlite:///{tmp_path / 'letters.db'}", 400
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    ledger = Ledger()
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        slow = await app.connection.channel()
        await slow.qos(1)
        came: asyncio.Queue[Delivery] = asyncio.Queue()
        await slow.consume("orders", came.put_nowait, lambda: None)

        async def work() -> None:
            while True:
                one = await came.get()
                await asyncio.sleep(0.02)
                ledger.note(one)
                slow.ack(one.tag)

        working = asyncio.ensure_future(work())
        async with watching(app, "orders") as seen:
            with served(vhost, tmp_path, settings(url)):
                replay = await begun(url, vhost.name, pace=pace, outcome_ms=1_000)
                view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
                await app.until(lambda: len(ledger.got) == count, 120, "all of them")
        working.cancel()
        await asyncio.wait({working})
    assert view.state is ReplayState.DONE, view.told
    assert ledger.twice == set()
    assert seen.looks > 50
    assert 1 <= seen.most <= 30
