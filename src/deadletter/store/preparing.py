"""Prepares a store: runs the migrations it has not had yet, all of them in one transaction.

Several instances may start at once: on PostgreSQL an advisory lock, on SQLite the file's own write lock lets
one of them work and the others find nothing left to do. A store that needs nothing is only read, so it does
not matter who is writing to it.

* **A newer version than ours** is left alone: migrations only add, so what we ask still has its answer.
* **Where we may not create anything**, a `dlq_event_config` that is there already is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from deadletter.core.deciding.event_config import TABLE
from deadletter.errors import StoreRefused, StoreUnreachable
from deadletter.store.database_errors import FOREIGN, in_our_words, is_forbidden
from deadletter.store.engine import WRITES, new_engine
from deadletter.store.store_address import PostgresAddress, SqliteAddress, StoreAddress, parse

VERSION_TABLE: Final = "deadletter_version"
"""Alembic's, under a name of ours: an application in the same database may use Alembic too."""
MIGRATION_LOCK: Final = 0x6465_6164_6C65_7401
MIGRATIONS: Final = Path(__file__).parent / "migrations"
_PAGE: Final = "PRAGMA page_size = 8192"
"""Of letters of a kilobyte and half of that packed, SQLite's own 4,096 bytes leave more room unused."""
_BY_HAND: Final = f"CREATE TABLE {TABLE} (id integer PRIMARY KEY, name varchar(100), max_retries integer)"


async def migrate(url: str, *, migrations: Path = MIGRATIONS) -> None:
    """Make the store ready for this version of Deadletter. `migrations`: other steps, for tests."""
    address = parse(url)
    if isinstance(address, SqliteAddress):
        _make_room(address)
    script = ScriptDirectory(migrations)
    engine = new_engine(address)
    if isinstance(address, SqliteAddress):
        event.listen(engine.sync_engine, "connect", _page)
    try:
        with in_our_words(address):
            try:
                await _migrate(engine, address, script)
            except FOREIGN as error:
                if not is_forbidden(error):
                    raise
                if not await _has_table(engine):
                    raise StoreRefused(
                        f"the store {address} has no table {TABLE} and we may not create it; have somebody "
                        f"who may run: {_BY_HAND}"
                    ) from error
    finally:
        await engine.dispose()


async def _migrate(engine: AsyncEngine, address: StoreAddress, script: ScriptDirectory) -> None:
    async with engine.connect() as connection:
        if not await connection.run_sync(_outstanding, script):
            return
    async with engine.connect() as connection:
        await connection.execution_options(**WRITES)
        async with connection.begin():
            if isinstance(address, PostgresAddress):
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            await connection.run_sync(_upgrade, script)


async def _has_table(engine: AsyncEngine) -> bool:
    async with engine.connect() as connection:
        return await connection.run_sync(lambda sync: sa.inspect(sync).has_table(TABLE))


def _outstanding(connection: Connection, script: ScriptDirectory) -> list[RevisionStep]:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return _steps(script, context.get_current_heads())


def _upgrade(connection: Connection, script: ScriptDirectory) -> None:
    def steps(heads: tuple[str, ...], _context: MigrationContext) -> Iterable[RevisionStep]:
        return _steps(script, heads)

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "fn": steps})
    context.run_migrations(op=Operations(context))


def _steps(script: ScriptDirectory, heads: tuple[str, ...]) -> list[RevisionStep]:
    """What is left to do from here, oldest first; nothing for a store that is newer than we are."""
    ours = list(script.walk_revisions())  # the newest first
    if any(head not in {revision.revision for revision in ours} for head in heads):
        return []
    left = list(script.iterate_revisions("head", heads or "base"))
    return [MigrationStep.upgrade_from_script(script.revision_map, step) for step in reversed(left)]


def _page(connection: DBAPIConnection, _record: object) -> None:
    """Before anything is in the file: one that has its pages keeps them."""
    cursor = connection.cursor()
    cursor.execute(_PAGE)
    cursor.close()


def _make_room(address: SqliteAddress) -> None:
    """The directory, and an empty file that only its owner may read: what is in it names queues and errors of
    whoever uses them. SQLite gives its journals the file's own mode. A file that is there keeps its mode."""
    path = address.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            os.close(made)
    except OSError as error:
        raise StoreUnreachable(
            f"the store {address} cannot be used: {error.strerror or error}: {error.filename}"
        ) from error
