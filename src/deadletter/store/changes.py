"""Notices when anybody changes `dlq_event_config`, also by hand in `psql` or `sqlite3`.

Whatever wakes us, the table itself says whether it changed: a wake-up too many costs a question, and none is
believed.

* **PostgreSQL, our own table**: a trigger notifies, and we listen. That it is heard is tried once, because a
  pooler between us and the server may swallow it. A check every CHECK_S is for a trigger that was dropped.
* **PostgreSQL, somebody else's table**, or nothing heard: a digest of the rows, computed by the server, every
  POLL_S.
* **SQLite**: `PRAGMA data_version`, which changes with every commit of another connection to the file, every
  POLL_S; it costs some microseconds. And whether it is still the same file: who replaces it would leave us
  reading the old one for ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Text, cast, func, literal, select, text
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from deadletter.core.deciding.event_config import MAX_ROWS, Row
from deadletter.errors import StoreUnreachable
from deadletter.store import event_table
from deadletter.store.database_errors import FOREIGN, is_forbidden
from deadletter.store.event_table import event_config
from deadletter.store.store_address import SqliteAddress

CHANNEL: Final = "deadletter_policies"
TRIGGER: Final = "deadletter_notify"
POLL_S: Final = 1.0
CHECK_S: Final = 10.0
_HEARING_S: Final = 1.0
_NEWEST: Final = select(event_config).order_by(event_config.c.id.desc()).limit(MAX_ROWS).subquery("newest").c
_ROW: Final = func.concat_ws(
    "|",
    _NEWEST.id,
    func.coalesce(func.length(_NEWEST.name), -1),
    _NEWEST.name,
    func.coalesce(cast(_NEWEST.max_retries, Text), "-"),
)
_DIGEST: Final = select(
    func.concat(
        func.count(), " ", func.md5(func.string_agg(_ROW, aggregate_order_by(literal(","), _NEWEST.id)))
    )
)
_TRIGGERS: Final = text(
    "SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = to_regclass(:table) AND tgname = :trigger "
    "AND tgenabled IN ('O', 'A')"
).bindparams(table=event_config.name, trigger=TRIGGER)
_VERSION: Final = text("PRAGMA data_version")


async def postgres_changes(engine: AsyncEngine) -> AsyncGenerator[list[Row], None]:
    """The rows as they are, then again whenever they are others; for ever, or until the store is lost."""
    async with engine.connect() as connection:
        woken = asyncio.Event()
        every_s = CHECK_S if await _listening(connection, woken) else POLL_S
        seen: object = None
        while True:
            woken.clear()
            async with connection.begin():
                digest = await connection.scalar(_DIGEST)
                found = await event_table.rows(connection) if digest != seen else None
            if found is not None:
                seen = digest
                yield found
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), every_s)


async def _listening(connection: AsyncConnection, woken: asyncio.Event) -> bool:
    """Whether a change in the table will set the event."""
    async with connection.begin():
        if not await connection.scalar(_TRIGGERS):
            return False
    raw = (await connection.get_raw_connection()).driver_connection
    assert raw is not None
    await connection.rollback()

    def wake(*_told: object) -> None:
        woken.set()

    try:
        await raw.add_listener(CHANNEL, wake)
        async with connection.begin():
            await connection.execute(select(func.pg_notify(CHANNEL, "")))
    except FOREIGN as error:
        if not is_forbidden(error):  # a server that only follows another one cannot notify
            raise
        return False
    raw.add_termination_listener(wake)
    try:
        await asyncio.wait_for(woken.wait(), _HEARING_S)
    except TimeoutError:
        return False
    return True


async def sqlite_changes(engine: AsyncEngine, address: SqliteAddress) -> AsyncGenerator[list[Row], None]:
    """The rows as they are, then again whenever they are others; for ever, or until the file is lost."""
    async with engine.connect() as connection:
        file = identity(address)
        version: object = None
        seen: list[Row] | None = None
        while True:
            found = None
            # a transaction that stays open would keep others from writing, and would see no change
            async with connection.begin():
                now = await connection.scalar(_VERSION)
                if now != version:
                    version, found = now, await event_table.rows(connection)
            if found is not None and found != seen:
                seen = found
                yield found
            await asyncio.sleep(POLL_S)
            if identity(address) != file:
                raise StoreUnreachable(f"the store {address} is no longer the file it was: moved or replaced")


def identity(address: SqliteAddress) -> tuple[int, int]:
    """Which file is at this path."""
    path: Path = address.path
    try:
        told = os.stat(path)  # noqa: PTH116 -- some microseconds, of a local file
    except FileNotFoundError:
        raise StoreUnreachable(f"the store {address} is gone: somebody moved or deleted the file") from None
    return told.st_dev, told.st_ino
