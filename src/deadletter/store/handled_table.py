"""Reads and writes `deadletter_handled`: a row per message that a consumer began, until it may be forgotten.

All within the caller's transaction. Who claims a key that another transaction has claimed and not committed
waits for it: on PostgreSQL for that row, on SQLite for the file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import BigInteger, String, column, delete, select, table, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

CLEAN_MAX: Final = 10_000
"""So many rows are forgotten at once, so that nobody waits long for it."""

handled: Final = table(
    "deadletter_handled",
    column("queue", String),
    column("key", String),
    column("state", String),
    column("at_ms", BigInteger),
    column("until_ms", BigInteger),
)


class HandledState(StrEnum):
    """What is known of a key."""

    BEGUN = "begun"
    DONE = "done"


async def claim(
    connection: AsyncConnection, queue: str, key: str, *, now_ms: int, until_ms: int
) -> HandledState | None:
    """Mark it as begun unless it is done; what it was before, None when nothing is known of it."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    added = await connection.execute(
        insert(handled)
        .values(queue=queue, key=key, state=HandledState.BEGUN.value, at_ms=now_ms, until_ms=until_ms)
        .on_conflict_do_nothing(index_elements=["queue", "key"])
    )
    if added.rowcount == 1:
        return None
    columns = handled.c
    asked = select(columns.state, columns.until_ms).where(columns.queue == queue, columns.key == key)
    found = (await connection.execute(asked.with_for_update())).one_or_none()
    if found is not None and found.state == HandledState.DONE and found.until_ms > now_ms:
        return HandledState.DONE
    await mark(connection, queue, key, HandledState.BEGUN, now_ms=now_ms, until_ms=until_ms)
    return HandledState.BEGUN if found is not None and found.until_ms > now_ms else None


async def mark(
    connection: AsyncConnection, queue: str, key: str, state: HandledState, *, now_ms: int, until_ms: int
) -> None:
    """It is in this state, whatever it was."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    told = {"state": state.value, "at_ms": now_ms, "until_ms": until_ms}
    await connection.execute(
        insert(handled)
        .values(queue=queue, key=key, **told)
        .on_conflict_do_update(index_elements=["queue", "key"], set_=told)
    )


async def forget(connection: AsyncConnection, queue: str, key: str) -> None:
    """It was not done: nothing is known of it any more."""
    columns = handled.c
    await connection.execute(
        delete(handled).where(
            columns.queue == queue, columns.key == key, columns.state == HandledState.BEGUN.value
        )
    )


async def clean(connection: AsyncConnection, *, now_ms: int, most: int = CLEAN_MAX) -> int:
    """Forget what was kept long enough; how many that were."""
    columns = handled.c
    old = select(columns.queue, columns.key).where(columns.until_ms <= now_ms).limit(most)
    gone = await connection.execute(
        delete(handled).where(
            tuple_(columns.queue, columns.key).in_(old),
            columns.until_ms <= now_ms,  # somebody may have begun one of them anew
        )
    )
    return int(gone.rowcount)
