"""A store that does not do its part: words that help, nothing half done, and everything goes on afterwards.

About `store.letters.letter_store`, `store.letters.ingesting`, `store.database_errors`, `store.changes`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.store.grounds import Ground, PostgresGround, SqliteGround
from tests.store.parked import Clock, letters_at, parked, stored

from deadletter.core.deciding.event_config import Row
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.errors import StoreError, StoreUnreachable
from deadletter.store.letters.ingesting import Ingested
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.opening import open_store
from deadletter.store.preparing import MIGRATIONS, migrate

pytestmark = pytest.mark.unprepared

BATCH = [parked(n, error=f"kind {'abcde'[n % 5]}", body=b"%d" % n * 200) for n in range(60)]

CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE application_name = 'deadletter' AND datname = current_database()"
)


async def _all_once(store: LetterStore, letters: int) -> None:
    rows = (await store.find(LetterQuery(limit=1_000))).letters
    assert len(rows) == len({row.letter_id for row in rows}) == letters
    assert {row.copies for row in rows} <= {0}
    assert sum(group.open for group in await store.groups(GroupQuery(limit=1_000))) == letters
    for row in rows[:5]:
        assert (await store.letter(str(row.id))).letter.body


async def test_a_file_that_somebody_else_writes_to(sqlite_ground: SqliteGround) -> None:
    async with letters_at(sqlite_ground) as store:
        await store.ingest(stored(parked(1_000)))
        with closing(sqlite3.connect(sqlite_ground.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreUnreachable, match="is locked by somebody who writes to it; nothing was done"
            ):
                await store.ingest(stored(*BATCH))
            assert len((await store.find(LetterQuery())).letters) == 1  # reading does not wait
            other.execute("ROLLBACK")
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)
        await _all_once(store, len(BATCH) + 1)


async def test_groups_that_always_go_end_in_words(sqlite_ground: SqliteGround) -> None:
    """Somebody who groups letters anew may take a group away while letters of it come; not for ever."""
    async with letters_at(sqlite_ground) as store:
        with closing(sqlite3.connect(sqlite_ground.path)) as other:
            other.execute(
                "CREATE TRIGGER takes_them AFTER INSERT ON deadletter_letters "
                "BEGIN DELETE FROM deadletter_groups WHERE id = NEW.group_id; END"
            )
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnreachable, match="groups go while letters come; nothing was stored"):
                await store.ingest(stored(*BATCH))
        with closing(sqlite3.connect(sqlite_ground.path)) as other:
            other.execute("DROP TRIGGER takes_them")
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)
        await _all_once(store, len(BATCH))


async def test_a_file_that_only_may_be_read(sqlite_ground: SqliteGround) -> None:
    async with letters_at(sqlite_ground) as store:
        await store.ingest(stored(parked(1)))
        _on_every_connection(store, "PRAGMA query_only = 1")  # to root no file is read-only
        with pytest.raises(StoreError, match="attempt to write a readonly database"):
            await store.ingest(stored(*BATCH))
        with pytest.raises(StoreError, match="attempt to write a readonly database"):
            await store.forget_some("deadletter.parked", Retention(letters=0))
        assert len((await store.find(LetterQuery())).letters) == 1
    async with letters_at(sqlite_ground) as store:
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)


@pytest.mark.parametrize("pages", [64, 80, 99])
async def test_a_full_disk(sqlite_ground: SqliteGround, pages: int) -> None:
    async with letters_at(sqlite_ground) as store:
        await store.ingest(stored(parked(1_000)))
        limit = _on_every_connection(store, f"PRAGMA max_page_count = {pages}")
        stuck = [parked(n + 2_000, body=random.Random(n).randbytes(70_000)) for n in range(40)]
        with pytest.raises(StoreUnreachable, match="cannot be used: database or disk is full"):
            await store.ingest(stored(*stuck, *BATCH))
        await _all_once(store, 1)
        event.remove(store.connections.engine.sync_engine, "checkout", limit)
        _on_every_connection(store, "PRAGMA max_page_count = 1073741823")
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)
        await _all_once(store, len(BATCH) + 1)
        assert sqlite_ground.sql("PRAGMA integrity_check") == "ok"


def _on_every_connection(store: LetterStore, statement: str) -> Callable[..., None]:
    def set_it(connection: object, *_more: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute(statement)
        cursor.close()

    event.listen(store.connections.engine.sync_engine, "checkout", set_it)
    return set_it


async def test_a_directory_that_is_gone(sqlite_ground: SqliteGround) -> None:
    async with letters_at(sqlite_ground) as store:
        await store.ingest(stored(parked(1)))
        shutil.rmtree(sqlite_ground.path.parent)
        for asked in (store.ingest(stored(*BATCH)), store.find(LetterQuery()), store.groups(GroupQuery())):
            with pytest.raises(StoreUnreachable, match="is gone: somebody moved or deleted the file"):
                await asked
        assert not sqlite_ground.path.parent.exists()


async def test_a_file_that_was_moved_takes_nothing_more(sqlite_ground: SqliteGround, tmp_path: Path) -> None:
    async with letters_at(sqlite_ground) as store:
        await store.ingest(stored(parked(1)))
        moved = SqliteGround(tmp_path / "moved.db")
        for end in ("", "-wal", "-shm"):
            sqlite_ground.path.with_name(sqlite_ground.path.name + end).rename(f"{moved.path}{end}")
        await migrate(sqlite_ground.url)
        with pytest.raises(StoreUnreachable, match="no longer the file it was"):
            await store.ingest(stored(*BATCH))
        assert moved.sql("SELECT count(*) FROM deadletter_letters") == "1"
        # whoever tries again finds the file that is there now
        done = Ingested()
        for _ in range(8):
            try:
                done = await store.ingest(stored(*BATCH))
            except StoreUnreachable:
                continue
            break
        assert done == Ingested(new=len(BATCH), new_groups=5)
        await _all_once(store, len(BATCH))


async def test_postgresql_restarted_in_the_middle(postgres_ground: PostgresGround) -> None:
    async with letters_at(postgres_ground) as store:
        ingesting = asyncio.create_task(_stubborn(store))
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(postgres_ground.server.stop)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(postgres_ground.server.start)
        said = await ingesting
        assert all("the store" in words for words in said)
        await _all_once(store, 300)


async def test_connections_that_are_cut(postgres_ground: PostgresGround) -> None:
    async with letters_at(postgres_ground) as store:
        ingesting = asyncio.create_task(_stubborn(store))
        for _ in range(8):
            await asyncio.to_thread(postgres_ground.sql, CUT)
            await asyncio.sleep(0.1)
        await ingesting
        await _all_once(store, 300)


async def test_a_database_that_was_put_back(postgres_ground: PostgresGround) -> None:
    async with letters_at(postgres_ground) as store:
        for start in range(0, 60, 20):
            await store.ingest(stored(*(parked(n) for n in range(start, start + 20))))
        ours = "FROM pg_tables WHERE tablename LIKE 'deadletter_%' AND tablename <> 'deadletter_version'"
        tables = postgres_ground.sql(f"SELECT string_agg(tablename, ', ') {ours}")
        postgres_ground.sql(f"TRUNCATE {tables} RESTART IDENTITY")
        postgres_ground.sql(CUT)
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)
        await _all_once(store, len(BATCH))


async def _stubborn(store: LetterStore) -> list[str]:
    """Puts 300 letters, each batch again until it is committed, as whoever acks afterwards does."""
    said: list[str] = []
    for start in range(0, 300, 30):
        batch = stored(*(parked(n, error=f"kind {'abcde'[n % 5]}") for n in range(start, start + 30)))
        for _ in range(400):
            try:
                await store.ingest(batch)
            except StoreUnreachable as error:
                said.append(str(error))
                await asyncio.sleep(0.05)
                continue
            break
        else:
            pytest.fail(f"never stored: {said[-1]}")
    return said


async def test_a_batch_that_was_cancelled_is_not_half_there(ground: Ground) -> None:
    async with letters_at(ground) as store:
        for wait in (0.0, 0.001, 0.003, 0.01):
            task = asyncio.create_task(store.ingest(stored(*BATCH)))
            await asyncio.sleep(wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert len((await store.find(LetterQuery(limit=100))).letters) in (0, len(BATCH))
        await store.ingest(stored(*BATCH))
        await _all_once(store, len(BATCH))


async def test_a_store_of_the_version_before_gets_its_tables_and_keeps_its_rows(
    ground: Ground, tmp_path: Path
) -> None:
    older = tmp_path / "migrations"
    shutil.copytree(
        MIGRATIONS,
        older,
        ignore=shutil.ignore_patterns(
            "__pycache__", "v0003*", "v0004*", "v0005*", "v0006*", "v0007*", "v0008*"
        ),
    )
    await migrate(ground.url, migrations=older)
    ground.sql("INSERT INTO dlq_event_config (id, name, max_retries) VALUES (7, 'order.placed', 3)")
    assert ground.sql("SELECT * FROM deadletter_version") == "0002"
    with pytest.raises(StoreError, match="deadletter_"):
        await _look(ground)
    async with letters_at(ground) as store:
        assert (await store.ingest(stored(*BATCH))).new == len(BATCH)
    async with open_store(ground.url) as store_:
        assert await store_.event_rows() == [Row(id=7, name="order.placed", max_retries=3)]
    ground.sql("UPDATE deadletter_version SET version_num = '9999'")
    async with letters_at(ground) as store:  # a newer one only has more
        await store.ingest(stored(parked(5_000)))
        await _all_once(store, len(BATCH) + 1)


async def _look(ground: Ground) -> None:
    async with open_letters(ground.url, prepare=False, now_ms=Clock()) as store:
        await store.groups(GroupQuery())
