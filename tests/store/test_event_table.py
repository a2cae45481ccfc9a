"""Writing to the table: which row is changed, where an id comes from, several writers at once.

About `store.event_table`, `store.opening`, `store.database_errors`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing

import asyncpg  # type: ignore[import-untyped]
import pytest
from tests.store.grounds import Ground, PostgresGround, SqliteGround

from deadletter.core.deciding.event_config import Row
from deadletter.errors import StoreRefused, StoreUnreachable, UsageError
from deadletter.store import engine
from deadletter.store.opening import open_store

pytestmark = pytest.mark.unprepared

ALL = "SELECT id, name, max_retries FROM dlq_event_config ORDER BY id"


async def test_set_inserts_changes_and_remove_removes(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        await store.set_event("order.placed", 3)
        await store.set_event("order.#", 0)
        await store.set_event("order.placed", 5)
        assert ground.sql(ALL) == "1|order.placed|5\n2|order.#|0"
        assert await store.remove_event("order.placed") == 1
        assert await store.remove_event("order.placed") == 0
        assert await store.event_rows() == [Row(id=2, name="order.#", max_retries=0)]


async def test_of_several_rows_the_one_that_decides_is_changed_and_all_are_removed(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        ground.sql(
            "INSERT INTO dlq_event_config VALUES (3, 'a', 1), (9, 'a', NULL), (5, 'a', 2), (7, 'b', 2)"
        )
        await store.set_event("a", 4)
        assert ground.sql(ALL) == "3|a|1\n5|a|2\n7|b|2\n9|a|4"
        assert await store.remove_event("a") == 3
        assert ground.sql(ALL) == "7|b|2"


async def test_what_would_be_ignored_is_not_written(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        with pytest.raises(UsageError, match="expected at most 100 characters"):
            await store.set_event("a" * 101, 1)
        with pytest.raises(UsageError, match="max_retries: expected a number from 0"):
            await store.set_event("a", -1)
        assert await store.event_rows() == []


async def test_names_are_values_and_no_sql(ground: Ground) -> None:
    name = "'; DROP TABLE dlq_event_config; -- %s :x ☃"
    async with open_store(ground.url) as store:
        await store.set_event(name, 1)
        assert await store.event_rows() == [Row(id=1, name=name, max_retries=1)]
        assert await store.remove_event(name) == 1


async def test_writers_at_once_get_an_id_each(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        await asyncio.gather(*(store.set_event(f"k{n}", n) for n in range(12)))
        rows = await store.event_rows()
    assert sorted(row.id or 0 for row in rows) == list(range(1, 13))
    assert {row.name for row in rows} == {f"k{n}" for n in range(12)}


async def test_writers_at_once_of_one_name_leave_one_row(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        await asyncio.gather(*(store.set_event("same", n) for n in range(12)))
        assert [(row.id, row.name) for row in await store.event_rows()] == [(1, "same")]


@pytest.mark.parametrize("id_", ["serial PRIMARY KEY", "int GENERATED ALWAYS AS IDENTITY PRIMARY KEY"])
async def test_where_the_table_gives_ids_it_gives_ours_too(postgres_ground: PostgresGround, id_: str) -> None:
    ground = postgres_ground
    ground.sql(f"CREATE TABLE dlq_event_config (id {id_}, name varchar(100), max_retries int)")
    async with open_store(ground.url) as store:
        await store.set_event("ours", 1)
    # a number of our own choice would make this one fail
    ground.sql("INSERT INTO dlq_event_config (name, max_retries) VALUES ('theirs', 2)")
    assert ground.sql(ALL) == "1|ours|1\n2|theirs|2"


async def test_another_writer_is_quicker_with_the_same_id(postgres_ground: PostgresGround) -> None:
    async with open_store(postgres_ground.url) as store:
        theirs = await asyncpg.connect(postgres_ground.url)
        try:
            transaction = theirs.transaction()
            await transaction.start()
            await theirs.execute("INSERT INTO dlq_event_config VALUES (1, 'theirs', 1)")
            ours = asyncio.create_task(store.set_event("ours", 2))
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{}'"
            )
            waiting = waiting.format(postgres_ground.url.rpartition("/")[2])
            while postgres_ground.sql(waiting) == "0":  # noqa: ASYNC110 -- the server tells of no event
                await asyncio.sleep(0.05)
            await transaction.commit()
            await ours
        finally:
            await theirs.close()
    assert postgres_ground.sql(ALL) == "1|theirs|1\n2|ours|2"


async def test_a_table_that_wants_more_than_we_know_says_so(postgres_ground: PostgresGround) -> None:
    postgres_ground.sql(
        "CREATE TABLE dlq_event_config (id int PRIMARY KEY, name varchar(9), max_retries int, a int NOT NULL)"
    )
    async with open_store(postgres_ground.url) as store:
        with pytest.raises(StoreRefused, match='null value in column "a"'):
            await store.set_event("b", 1)
    postgres_ground.sql("ALTER TABLE dlq_event_config DROP COLUMN name")
    async with open_store(postgres_ground.url) as store:
        with pytest.raises(StoreRefused, match=r"column dlq_event_config\.name does not exist"):
            await store.event_rows()


async def test_sqlite_keeps_anything_in_any_column(sqlite_ground: SqliteGround) -> None:
    sqlite_ground.path.parent.mkdir()
    sqlite_ground.sql(
        "CREATE TABLE dlq_event_config (id int PRIMARY KEY, name varchar(100), max_retries int)"
    )
    sqlite_ground.sql(
        "INSERT INTO dlq_event_config VALUES (NULL, 'no id', 2), (1, 17, ' 3'), (2, 'x', 'three'), "
        "(3, 'y', 2.0), (4, 'z', 2.5), (5, CAST('blob' AS BLOB), -1)"
    )
    async with open_store(sqlite_ground.url) as store:
        assert await store.event_rows() == [
            Row(id=5, name="blob", max_retries=-1),
            Row(id=4, name="z", max_retries=None),
            Row(id=3, name="y", max_retries=2),
            Row(id=2, name="x", max_retries=None),
            Row(id=1, name="17", max_retries=3),
            Row(id=None, name="no id", max_retries=2),
        ]
        await store.set_event("no id", 7)
        assert (await store.event_rows())[0] == Row(id=6, name="no id", max_retries=7)


async def test_another_writer_of_the_file_is_waited_for(sqlite_ground: SqliteGround) -> None:
    async with open_store(sqlite_ground.url) as store:
        with closing(
            sqlite3.connect(sqlite_ground.path, isolation_level=None, check_same_thread=False)
        ) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT INTO dlq_event_config VALUES (1, 'theirs', 1)")
            release = threading.Timer(1.0, other.commit)
            release.start()
            assert await store.event_rows() == []  # who only reads need not wait
            await store.set_event("ours", 2)
            release.join()
    assert sqlite_ground.sql(ALL) == "1|theirs|1\n2|ours|2"


async def test_a_writer_who_stays_is_named(
    sqlite_ground: SqliteGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(sqlite_ground.url):
        pass
    defaults = engine.new_engine.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "lock_limit_s", 0.2)
    async with open_store(sqlite_ground.url) as store:
        with closing(sqlite3.connect(sqlite_ground.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(
                StoreUnreachable, match="is locked by somebody who writes to it; nothing was done"
            ):
                await store.set_event("ours", 2)
            with pytest.raises(StoreUnreachable, match="is locked by somebody"):
                await store.event_rows()
            other.rollback()
        assert await store.event_rows() == []
