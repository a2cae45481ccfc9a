"""A change in the table is noticed, whoever makes it and however.

About `store.changes`, `store.database_errors`, `store.engine`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from sqlalchemy import func, literal
from tests.store.grounds import Ground, PostgresGround, SqliteGround

from deadletter.core.deciding.event_config import Row
from deadletter.errors import StoreUnreachable
from deadletter.store import changes
from deadletter.store.opening import open_store

HANG_S = 30.0
A = Row(id=1, name="a", max_retries=1)


async def after(found: AsyncGenerator[list[Row], None]) -> list[Row]:
    return await asyncio.wait_for(anext(found), HANG_S)


async def test_what_somebody_else_does_is_noticed(ground: Ground) -> None:
    async with open_store(ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
        assert await after(found) == [A]
        ground.sql("UPDATE dlq_event_config SET max_retries = NULL")
        assert await after(found) == [Row(id=1, name="a", max_retries=None)]
        ground.sql("UPDATE dlq_event_config SET name = NULL")
        assert await after(found) == [Row(id=1, name=None, max_retries=None)]
        ground.sql("DELETE FROM dlq_event_config")
        assert await after(found) == []


async def test_what_we_do_ourselves_is_noticed(ground: Ground) -> None:
    async with open_store(ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        await store.set_event("a", 1)
        assert await after(found) == [A]
        await store.remove_event("a")
        assert await after(found) == []


async def test_our_own_table_needs_no_polling(
    postgres_ground: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHECK_S", 10 * HANG_S)
    async with open_store(postgres_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        postgres_ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
        assert await after(found) == [A]
        postgres_ground.sql("TRUNCATE dlq_event_config")
        assert await after(found) == []


@pytest.mark.unprepared
@pytest.mark.parametrize("dropped", [False, True])
async def test_without_a_trigger_it_is_polled(
    postgres_ground: PostgresGround, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    """Somebody else's table gets none of ours; and of ours somebody may drop it."""
    monkeypatch.setattr(changes, "CHECK_S", 10 * HANG_S)
    ground = postgres_ground
    if not dropped:
        ground.sql("CREATE TABLE dlq_event_config (id bigint PRIMARY KEY, name text, max_retries numeric)")
    async with open_store(ground.url) as store:
        if dropped:
            ground.sql("DROP TRIGGER deadletter_notify ON dlq_event_config")
        assert ground.sql("SELECT count(*) FROM pg_trigger WHERE tgname = 'deadletter_notify'") == "0"
        async with aclosing(store.changes()) as found:
            assert await after(found) == []
            ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
            assert await after(found) == [A]


async def test_a_trigger_that_nobody_hears_is_not_relied_on(
    postgres_ground: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which takes LISTEN to a connection that is somebody else's a moment later."""
    monkeypatch.setattr(changes, "CHECK_S", 10 * HANG_S)
    monkeypatch.setattr(changes, "CHANNEL", "another_channel")
    monkeypatch.setattr(func, "pg_notify", lambda *_: literal(1), raising=False)
    async with open_store(postgres_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        postgres_ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
        assert await after(found) == [A]


async def test_other_tables_of_the_file_are_no_change(sqlite_ground: SqliteGround) -> None:
    async with open_store(sqlite_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        coming = asyncio.ensure_future(anext(found))
        sqlite_ground.sql("CREATE TABLE other (a int)")
        await asyncio.sleep(3 * changes.POLL_S)
        assert not coming.done()
        sqlite_ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
        assert await asyncio.wait_for(coming, HANG_S) == [A]


async def test_watching_keeps_nobody_from_writing(sqlite_ground: SqliteGround) -> None:
    async with open_store(sqlite_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        sqlite_ground.sql("PRAGMA journal_mode = DELETE")
        sqlite_ground.sql("CREATE TABLE other (a int)")  # exclusive, if only for a moment


@pytest.mark.parametrize("replaced", [False, True])
async def test_another_file_in_its_place_is_a_lost_store(sqlite_ground: SqliteGround, replaced: bool) -> None:
    async with open_store(sqlite_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        if replaced:
            copy = sqlite_ground.path.with_name("copy.db")
            shutil.copy(sqlite_ground.path, copy)
            copy.replace(sqlite_ground.path)
        else:
            sqlite_ground.path.unlink()
        with pytest.raises(StoreUnreachable, match="moved or replaced" if replaced else "is gone"):
            await after(found)


async def test_a_server_that_goes_away_is_noticed_at_once(
    postgres_ground: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHECK_S", 10 * HANG_S)
    async with open_store(postgres_ground.url) as store, aclosing(store.changes()) as found:
        assert await after(found) == []
        postgres_ground.server.stop()
        try:
            with pytest.raises(StoreUnreachable):
                await after(found)
        finally:
            postgres_ground.server.start()
