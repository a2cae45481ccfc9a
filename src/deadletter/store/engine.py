"""Connections to a store, with a limit on every wait.

There is no pool unless somebody asks for one: the service reads the table when it changed and a command once,
so a connection per question is cheap, and none is ever found dead. A consumer that keeps the ids of its
messages asks for each of them, and takes a small pool, whose connections are tried before they are used.

SQLite's locks are taken when we say so: Python's driver would begin a transaction at the first write, too
late for "read, then write". A connection whose execution option `writes` is set begins with `BEGIN
IMMEDIATE`, and so waits for other writers before it reads. The journal's mode is left as the file has it: it
belongs to whoever else uses the file.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, assert_never
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import URL, AsyncAdaptedQueuePool, Connection, NullPool, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from deadletter.store.store_address import PostgresAddress, SqliteAddress, StoreAddress

CONNECT_LIMIT_S: Final = 5.0
ANSWER_LIMIT_S: Final = 10.0
LOCK_LIMIT_S: Final = 5.0
"""How long we wait for another writer of the same SQLite file."""
POOL_LIMIT_S: Final = 30.0
"""How long we wait for a connection of the pool."""
IDLE_LIMIT_S: Final = 15.0
"""How long PostgreSQL keeps a transaction in which we ask nothing: a process that was stopped, or whose line
is dead and not closed, must not keep others from what it holds."""
RECYCLE_S: Final = 600
WRITES: Final = {"writes": True}
"""Execution options of a connection that is going to write."""


def new_engine(address: StoreAddress, *, lock_limit_s: float = LOCK_LIMIT_S, pool: int = 0) -> AsyncEngine:
    """A SQLite file that is not there is an error, and not an empty table. `pool`: keep so many connections;
    0: a new one for each question."""
    pooled = _pooled(pool)
    match address:
        case SqliteAddress(path=path):
            url = URL.create(
                "sqlite+aiosqlite",
                database=f"file:{quote(str(path.absolute()))}",
                query={"mode": "rw", "uri": "true"},
            )
            limits = {"timeout": lock_limit_s, "isolation_level": None}
            engine = create_async_engine(url, connect_args=limits, **pooled)
            event.listen(engine.sync_engine, "begin", _begin)
            return engine
        case PostgresAddress():
            return create_async_engine(
                "postgresql+asyncpg://", async_creator=partial(_connect, address), **pooled
            )
        case _:
            assert_never(address)


def _pooled(connections: int) -> dict[str, Any]:
    if not connections:
        return {"poolclass": NullPool}
    return {
        "poolclass": AsyncAdaptedQueuePool,
        "pool_size": connections,
        "max_overflow": 0,
        "pool_timeout": POOL_LIMIT_S,
        "pool_pre_ping": True,
        "pool_recycle": RECYCLE_S,
    }


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


async def _connect(address: PostgresAddress, *_more: object) -> Any:
    return await asyncpg.connect(
        address.dsn,
        timeout=CONNECT_LIMIT_S,
        command_timeout=ANSWER_LIMIT_S,
        server_settings={
            "application_name": "deadletter",
            "jit": "off",  # our questions are short; to compile one takes longer than to answer it
            "idle_in_transaction_session_timeout": str(int(IDLE_LIMIT_S * 1000)),
        },
    )
