"""What a handler publishes inside its transaction: after the commit or not at all, whenever the process dies.

About `store.outbox_table`, `consumer.handlers.once`, `consumer.store_ids`, `consumer.publishing.mailing`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.store.grounds import Ground

from deadletter import Consumer, Message, StoreIds, Transaction, fixed
from deadletter.consumer.publishing.publications import Publication
from deadletter.core.letter.message import view
from deadletter.testing.memory import MemoryBroker

ROWS = "SELECT queue, key, place FROM deadletter_outbox ORDER BY queue, key, place"


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within 60 s"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(app: Consumer, broker: MemoryBroker) -> AsyncIterator[None]:
    task = asyncio.create_task(app.serve(broker))
    await until(lambda: task.done() or (app.ready is not None and app.ready.is_set()))
    try:
        yield
    finally:
        app.stop()
        await task


async def declared(broker: MemoryBroker, *queues: str) -> None:
    channel = await (await broker.connect()).channel()
    for queue in queues:
        await channel.declare_queue(queue)


async def test_it_goes_out_after_the_commit_and_not_at_all_after_a_rollback(ground: Ground) -> None:
    broker, app, seen = MemoryBroker(), Consumer("amqp://broker.example"), list[int]()
    await declared(broker, "out")

    @app.queue("orders", idempotent=StoreIds(ground.url), retries=1, backoff=fixed(0.05))
    async def handle(body: str, message: Message, transaction: Transaction) -> None:
        await message.publish({"of": body}, key="out")
        await app.publish("more", key="out", exchange="", message_id=f"more-{message.message_id}")
        await asyncio.sleep(0.05)
        seen.append(broker.depth("out"))
        if body == "bad" or (body == "later" and not message.attempt):
            raise ValueError(body)

    async with serving(app, broker):
        for body in ("bad", "good", "later"):
            await app.publish(body, key="orders", message_id=body)
            await until(lambda: broker.depth("orders") == 0 and broker.unacked("orders") == 0)
        await until(lambda: broker.depth("out") == 4 and broker.depth("deadletter.parked") == 1)
    assert seen[:2] == [0, 0]  # of the bad one, and of the first that was committed before it was
    found = [(view(one.properties).message_id, one.body) for one in broker.messages("out")]
    assert {body for _, body in found} == {b'{"of":"good"}', b'{"of":"later"}', b"more"}
    assert {id_ for id_, body in found if body == b"more"} == {"more-good", "more-later"}
    assert ground.sql(ROWS) == ""


async def test_what_a_crash_left_is_published_when_the_message_comes_again(ground: Ground) -> None:
    """The line to the broker is gone just after the commit: the message comes again, and is done."""
    broker, runs = MemoryBroker(), list[str]()
    await declared(broker, "out")

    class Cut(StoreIds):
        async def unsent(self, queue: str, key: str) -> Sequence[Publication]:
            found = await super().unsent(queue, key)
            told.append(len(found))
            return found

    told: list[int] = []
    app = Consumer("amqp://broker.example")

    @app.queue("orders", idempotent=Cut(ground.url), retries=5, backoff=fixed(0.05))
    async def handle(body: str, message: Message, transaction: Transaction) -> None:
        runs.append(body)
        await message.publish("to a queue that is not there yet", key="late")
        await message.publish("fine", key="out")

    async with serving(app, broker):
        await app.publish("a", key="orders", message_id="m-1")
        await until(lambda: len(told) >= 1)
        assert ground.sql(ROWS).splitlines() == ["orders|m-1|0", "orders|m-1|1"]
        await declared(broker, "late")
        await until(lambda: broker.depth("late") == 1 and ground.sql(ROWS) == "")
    assert runs == ["a"], "a handler that is done does not run again"
    ids = {view(one.properties).message_id for one in broker.messages("out")}
    assert len(ids) == 1, "copies have the id of the first"
    assert broker.depth("deadletter.parked") == 0


async def test_a_store_that_was_made_by_hand_needs_no_outbox_until_somebody_publishes(ground: Ground) -> None:
    broker, app, runs = MemoryBroker(), Consumer("amqp://broker.example"), list[str]()
    ids = StoreIds(ground.url)
    await ids.open()
    await ids.close()
    ground.sql("DROP TABLE deadletter_outbox")

    @app.queue("orders", idempotent=ids)
    async def handle(body: str, transaction: Transaction) -> None:
        runs.append(body)

    async with serving(app, broker):
        for body in ("a", "a", "b"):
            await app.publish(body, key="orders", message_id=body)
        await until(
            lambda: sorted(runs) == ["a", "b"] and not broker.depth("orders") and not broker.unacked("orders")
        )
    assert broker.depth("deadletter.parked") == 0


@pytest.mark.parametrize("key", ["'; DROP TABLE deadletter_outbox; --", "k" * 300])
async def test_odd_keys_and_bytes_come_back_as_they_were(ground: Ground, key: str) -> None:
    ids = StoreIds(ground.url)
    await ids.open()
    odd = Publication("ex ☃", "k\udcff", "m", b"\x00\x01\xff", b"\0" * 70_000, False)
    async with ids.transaction("q", key[:255]) as transaction:
        assert transaction is not None
        transaction.outgoing = [odd, odd._replace(body=b"", mandatory=True)]
    assert list(await ids.unsent("q", key[:255])) == [odd, odd._replace(body=b"", mandatory=True)]
    assert list(await ids.unsent("other", key[:255])) == []
    await ids.sent("q", key[:255])
    assert list(await ids.unsent("q", key[:255])) == []
    await ids.close()
