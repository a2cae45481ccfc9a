"""Ids of handled messages, on both backends: begun, done, forgotten, and one with the handler's writes.

About `consumer.store_ids`, `store.handled_table`, `consumer.handlers.once`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.store.grounds import Ground, PostgresGround, SqliteGround

from deadletter.consumer.backoffs import fixed
from deadletter.consumer.handlers.handler_end import ALREADY_DONE, DONE, Failed
from deadletter.consumer.handlers.handling import Handler
from deadletter.consumer.idempotency import Seen, Transaction
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import Rules
from deadletter.consumer.store_ids import StoreIds
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.errors import StoreRefused, StoreUnreachable, TableMissing, UsageError

pytestmark = pytest.mark.unprepared

RULES = Rules(retries=3, backoff=fixed(1))
ROWS = "SELECT queue, key, state FROM deadletter_handled ORDER BY queue, key"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(ids: StoreIds) -> AsyncIterator[StoreIds]:
    await ids.open()
    try:
        yield ids
    finally:
        await ids.close()


def message(id_: str | None = "m1", body: bytes = b"{}") -> Message:
    raw = Raw(encode(View(message_id=id_)), body)
    return Message(
        Letter(source="orders", message=raw, came_by=ExchangeKey(b"", b"orders"), redelivered=False), 0
    )


async def test_begun_done_forgotten(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as ids:
        assert await ids.begin("orders", "a") is Seen.NEW
        assert await ids.begin("orders", "a") is Seen.BEGUN
        assert await ids.begin("bills", "a") is Seen.NEW  # ids of another queue are others
        await ids.forget("orders", "a")
        assert await ids.begin("orders", "a") is Seen.NEW
        await ids.done("orders", "a")
        assert await ids.begin("orders", "a") is Seen.DONE
        await ids.forget("orders", "a")  # what is done stays done
        assert await ids.begin("orders", "a") is Seen.DONE
    assert ground.sql(ROWS) == "bills|a|begun\norders|a|done"
    async with opened(StoreIds(ground.url)) as ids:  # another process
        assert await ids.begin("orders", "a") is Seen.DONE
        assert await ids.begin("bills", "a") is Seen.BEGUN


async def test_what_was_kept_long_enough_is_forgotten(ground: Ground) -> None:
    clock = Clock()
    async with opened(StoreIds(ground.url, keep=100, now=clock)) as ids:
        await ids.done("orders", "old")
        clock.now += 99
        assert await ids.begin("orders", "old") is Seen.DONE
        await ids.done("orders", "young")
        clock.now += 1
        assert await ids.begin("orders", "old") is Seen.NEW  # although its row is still there
        await ids.done("orders", "old2")
        clock.now += 150
        await ids.begin("orders", "now")  # cleans in passing
    assert ground.sql(ROWS) == "orders|now|begun"


async def test_keys_are_values_and_no_sql(ground: Ground) -> None:
    key = "'; DROP TABLE deadletter_handled; -- %s :x ☃"
    async with opened(StoreIds(ground.url)) as ids:
        await ids.done("orders", key)
        assert await ids.begin("orders", key) is Seen.DONE


async def test_many_at_once(ground: Ground) -> None:
    async with opened(StoreIds(ground.url, connections=4)) as ids:
        seen = await asyncio.gather(*(ids.begin("orders", f"k{n % 10}") for n in range(40)))
    assert sorted(one.name for one in seen) == ["BEGUN"] * 30 + ["NEW"] * 10


async def test_the_effect_and_the_mark_are_one(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as ids:
        ground.sql("CREATE TABLE paid (id varchar(10))")

        async def pay(body: dict[str, object], transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO paid VALUES (:id)", {"id": body["id"]})
            if body.get("fail"):
                raise ValueError("no")

        handler = Handler(pay, RULES, idempotent=ids)
        failed = await handler(message("m1", b'{"id": "x", "fail": true}'))
        assert isinstance(failed, Failed)
        assert ground.sql("SELECT * FROM paid") == ""
        assert ground.sql(ROWS) == ""
        assert await handler(message("m1", b'{"id": "x"}')) is DONE
        assert await handler(message("m1", b'{"id": "x"}')) is ALREADY_DONE
        assert ground.sql("SELECT * FROM paid") == "x"
        assert ground.sql(ROWS) == "orders|m1|done"
        with pytest.raises(UsageError, match="expected a message_id or a key"):
            raise (await handler(message(None, b'{"id": "y"}'))).error  # type: ignore[union-attr]


async def test_a_verb_that_says_not_done_takes_the_writes_back(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as ids:
        ground.sql("CREATE TABLE paid (id varchar(10))")

        async def pay(message: Message, transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO paid VALUES ('x')")
            await message.retry(after=5)

        assert isinstance(await Handler(pay, RULES, idempotent=ids)(message()), Failed)
    assert ground.sql("SELECT * FROM paid") == ""
    assert ground.sql(ROWS) == ""


async def test_two_processes_with_copies_of_a_message_pay_once(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as one, opened(StoreIds(ground.url)) as two:
        ground.sql("CREATE TABLE paid (id varchar(10))")

        async def pay(_: bytes, transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO paid VALUES ('x')")
            await asyncio.sleep(0.1)

        outcomes = await asyncio.gather(
            Handler(pay, RULES, idempotent=one)(message()), Handler(pay, RULES, idempotent=two)(message())
        )
    assert sorted(type(one).__name__ for one in outcomes) == ["AlreadyDone", "Done"]
    assert ground.sql("SELECT * FROM paid") == "x"


async def test_cancelled_in_the_middle_leaves_nothing(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as ids:
        ground.sql("CREATE TABLE paid (id varchar(10))")
        inside = asyncio.Event()

        async def pay(_: bytes, transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO paid VALUES ('x')")
            inside.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(Handler(pay, RULES, idempotent=ids)(message()))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ids.begin("orders", "m1") is Seen.NEW
    assert ground.sql("SELECT * FROM paid") == ""


async def test_the_handlers_own_errors_stay_its_own(ground: Ground) -> None:
    async with opened(StoreIds(ground.url)) as ids:

        async def pay(_: bytes, transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO nowhere VALUES (1)")

        outcome = await Handler(pay, RULES, idempotent=ids)(message())
        assert isinstance(outcome, Failed)
        assert type(outcome.error).__module__.startswith("sqlalchemy")


async def test_a_store_that_is_not_there(postgres_ground: PostgresGround) -> None:
    with pytest.raises(StoreUnreachable):
        await StoreIds("postgresql://u:p@127.0.0.1:1/d").open()
    with pytest.raises(StoreRefused):
        await StoreIds(postgres_ground.url.replace("//dlq:", "//nobody:")).open()


async def test_who_may_not_create_the_table_is_told_at_the_start(postgres_ground: PostgresGround) -> None:
    ground = postgres_ground
    ground.sql("DROP ROLE IF EXISTS idler")
    ground.sql("CREATE ROLE idler LOGIN PASSWORD 'secret'")
    ground.sql("CREATE TABLE dlq_event_config (id int PRIMARY KEY, name varchar(100), max_retries int)")
    ids = StoreIds(ground.url.replace("//dlq:", "//idler:"))
    with pytest.raises(TableMissing, match="deadletter_handled"):
        await ids.open()
    await ids.close()


async def test_a_connection_that_was_cut_is_replaced(postgres_ground: PostgresGround) -> None:
    async with opened(StoreIds(postgres_ground.url)) as ids:
        await ids.done("orders", "a")
        postgres_ground.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert await ids.begin("orders", "a") is Seen.DONE


async def test_begin_is_refused_before_open(sqlite_ground: SqliteGround) -> None:
    with pytest.raises(UsageError, match=r"expected open\(\)"):
        await StoreIds(sqlite_ground.url).done("orders", "a")
