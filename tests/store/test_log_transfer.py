"""SQLite's log comes into its file while letters are written, and nothing depends on it.

About `store.letters.log_transfer`, `store.letters.letter_connections`.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.store.grounds import SqliteGround
from tests.store.parked import letters_at, parked

from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.store.letters import log_transfer
from deadletter.store.letters.letter_store import LetterStore


async def _write(store: LetterStore, number: int) -> None:
    await store.ingest([stored_letter(parked(number), now_ms=store.now_ms())])


def _without_its_log(path: Path, to: Path) -> int:
    """How many letters are in the file itself."""
    shutil.copyfile(path, to)
    with sqlite3.connect(to) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        return int(connection.execute("SELECT count(*) FROM deadletter_letters").fetchone()[0])


async def test_what_is_written_comes_into_the_file_by_itself(
    sqlite_ground: SqliteGround, tmp_path: Path
) -> None:
    async with letters_at(sqlite_ground) as store:
        await _write(store, 1)
        for _ in range(100):
            if _without_its_log(sqlite_ground.path, tmp_path / "copy.db") == 1:
                return
            await asyncio.sleep(0.1)
    pytest.fail("the letter did not come out of the log within 10 s")


async def test_where_it_fails_letters_are_stored_all_the_same(
    sqlite_ground: SqliteGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_transfer, "_PASSIVE", "PRAGMA wal_checkpoint(; nonsense")
    async with letters_at(sqlite_ground) as store:
        for number in range(3):
            await _write(store, number)
            await asyncio.sleep(0.05)
    assert sqlite_ground.sql("SELECT count(*) FROM deadletter_letters") == "3"


async def test_it_ends_with_the_store_and_leaves_no_log(sqlite_ground: SqliteGround) -> None:
    async with letters_at(sqlite_ground) as store:
        await _write(store, 1)
    assert not Path(f"{sqlite_ground.path}-wal").exists()  # noqa: ASYNC240 -- a local file
    assert asyncio.all_tasks() == {asyncio.current_task()}
