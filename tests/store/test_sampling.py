"""Queues that the service sees, sampled by the minute; on both databases.

About `service.storing.sampling`.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.store.grounds import Ground
from tests.store.parked import NOON_MS

from deadletter.errors import StoreError
from deadletter.operations.records.store_records import LateRecords
from deadletter.service.storing import sampling
from deadletter.service.storing.sampling import QueueSampler
from deadletter.service.telling.service_events import (
    QueueGone,
    QueuesAlike,
    QueueSeen,
    Recovered,
    ServiceEvent,
    Trouble,
)
from deadletter.store.journal.journal_store import JournalStore


class Watch:
    """What the sampler takes for the time of day."""

    def __init__(self) -> None:
        self.now_s = NOON_MS / 1000

    def __call__(self) -> float:
        return self.now_s


def seen(depth: int, queue: str = "orders.dlq", **more: float) -> QueueSeen:
    return QueueSeen(queue=queue, watched=True, depth=depth, consumers=1, vhost="shop", **more)


async def test_a_minute_is_written_when_it_is_over(ground: Ground) -> None:
    clock = Watch()
    records = LateRecords(ground.url)
    sampler = QueueSampler(records, clock)
    try:
        sampler(seen(3, in_per_s=1.0, oldest_s=5.0))
        sampler(seen(9, in_per_s=3.0, oldest_s=65.0))
        sampler(seen(4, in_per_s=2.0))
        sampler(QueueGone(queue="orders.dlq"))
        assert sampler.over() == []
        clock.now_s += 60
        sampler(seen(1))
        (one,) = sampler.over()
        assert (one.depth, one.depth_most, one.in_per_s, one.oldest_s) == (4, 9, 2.0, 65.0)
        assert sampler.over() == []
        journal = JournalStore((await records()).opened)
        await journal.put_samples([one])
        assert await journal.queues_sampled(since_ms=NOON_MS) == [("shop", "orders.dlq")]
    finally:
        await records.close()


def test_more_queues_than_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "QUEUES", 2)
    clock = Watch()

    async def nobody() -> object:
        raise AssertionError("nothing is written")

    sampler = QueueSampler(nobody, clock)  # type: ignore[arg-type]  # it is not asked
    for number in range(5):
        sampler(seen(1, f"q{number}"))
    clock.now_s += 60
    assert [one.queue for one in sampler.over()] == ["q0", "q1"]


def test_queues_that_look_as_they_did_count_as_often_as_they_are_seen() -> None:
    clock = Watch()

    async def nobody() -> object:
        raise AssertionError("nothing is written")

    sampler = QueueSampler(nobody, clock)  # type: ignore[arg-type]  # it is not asked
    sampler(seen(3, in_per_s=6.0))
    still = seen(3)
    sampler(still)
    sampler(QueuesAlike(queues=(still,)))
    clock.now_s += 60
    (one,) = sampler.over()
    assert (one.depth, one.in_per_s) == (3, 2.0)


async def test_a_store_that_is_away_is_told_and_the_service_goes_on(ground: Ground) -> None:
    clock = Watch()
    clock.now_s -= 0.05
    away = True
    records = LateRecords(ground.url)

    async def store() -> object:
        if away:
            raise StoreError("it is away")
        return await records()

    told: list[ServiceEvent] = []
    sampler = QueueSampler(store, clock)  # type: ignore[arg-type]  # a store that is away now and then
    sampler(seen(1))
    running = asyncio.create_task(sampler.run(told.append))
    try:
        async with asyncio.timeout(60):
            clock.now_s += 59.9
            while not told:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.02)
            assert isinstance(told[0], Trouble)
            away = False
            sampler(seen(2))
            clock.now_s += 60
            while len(told) < 2:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.02)
        assert isinstance(told[-1], Recovered)
    finally:
        running.cancel()
        await asyncio.wait({running})
        await records.close()
