"""Reads and writes `dlq_event_config`, ours or somebody else's.

In somebody else's table the id may come from a sequence, and a number of our own choice would collide with
the next one of theirs; so where the column has a default, it gives the id. Where it has none the next free
number is taken within the statement that inserts, and again if another writer was quicker.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from sqlalchemy import Integer, String, column, delete, func, insert, literal, select, table, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from deadletter.core.deciding.event_config import MAX_ROWS, TABLE, Row
from deadletter.core.letter import header_values
from deadletter.store.database_errors import FOREIGN, sqlstate
from deadletter.store.engine import WRITES

EVENT_LOCK: Final = 0x6465_6164_6C65_7402
"""PostgreSQL's advisory locks are numbers; this is "deadlet" and one more."""
event_config: Final = table(
    TABLE, column("id", Integer), column("name", String), column("max_retries", Integer)
)
"""The columns we use and no others, whatever else the table may have. It is named without a schema, so
`search_path` decides where it is."""
_TAKEN: Final = "23505"
_TRIES: Final = 5
_MAX_WHOLE: Final = 2**63
_ID_HAS_DEFAULT: Final = text(
    "SELECT coalesce(bool_or(atthasdef OR attidentity <> ''), false) FROM pg_catalog.pg_attribute "
    "WHERE attrelid = to_regclass(:table) AND attname = 'id'"
).bindparams(table=event_config.name)


async def rows(connection: AsyncConnection) -> list[Row]:
    """The newest first, at most MAX_ROWS of them."""
    columns = event_config.c
    asked = select(columns.id, columns.name, columns.max_retries).order_by(columns.id.desc()).limit(MAX_ROWS)
    return [
        Row(id=_whole(id_), name=header_values.text(name, MAX_ROWS), max_retries=_whole(max_retries))
        for id_, name, max_retries in await connection.execute(asked)
    ]


async def put(engine: AsyncEngine, name: str, max_retries: int) -> None:
    """Change the row that decides for this name, or insert one."""
    for left in reversed(range(_TRIES)):
        try:
            async with engine.connect() as connection:
                await connection.execution_options(**WRITES)
                async with connection.begin():
                    await _put(connection, name, max_retries)
        except FOREIGN as error:
            if sqlstate(error) != _TAKEN or not left:
                raise
        else:
            return


async def _put(connection: AsyncConnection, name: str, max_retries: int) -> None:
    columns = event_config.c
    postgres = connection.dialect.name == "postgresql"
    if postgres:
        await connection.execute(select(func.pg_advisory_xact_lock(EVENT_LOCK)))
    deciding = select(func.max(columns.id)).where(columns.name == name).scalar_subquery()
    changed = await connection.execute(
        update(event_config)
        .where(columns.name == name, columns.id == deciding)
        .values(max_retries=max_retries)
    )
    if changed.rowcount:
        return
    if postgres and await connection.scalar(_ID_HAS_DEFAULT):
        await connection.execute(insert(event_config).values(name=name, max_retries=max_retries))
    else:
        next_id = func.coalesce(func.max(columns.id), 0) + 1
        await connection.execute(
            insert(event_config).from_select(
                ["id", "name", "max_retries"], select(next_id, literal(name), literal(max_retries))
            )
        )


async def remove(engine: AsyncEngine, name: str) -> int:
    """How many rows of this name there were."""
    async with engine.connect() as connection:
        await connection.execution_options(**WRITES)
        async with connection.begin():
            gone = await connection.execute(delete(event_config).where(event_config.c.name == name))
            return int(gone.rowcount)


def _whole(value: object) -> int | None:
    """SQLite keeps any type in any column, and other people's columns are numeric at times."""
    match value:
        case bool() | None:
            return None
        case int():
            return value
        case float() | Decimal():
            return int(value) if -_MAX_WHOLE < value < _MAX_WHOLE and value == int(value) else None
        case str() if len(value) <= 20 and value.strip().lstrip("-").isdecimal():
            return int(value)
        case _:
            return None
