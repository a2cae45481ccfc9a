"""Connections to the store of letters, for all who read and write it: one pool, one turn.

Whoever writes to SQLite does so one after the other. What is about letters and what is about replays share
these, so that no two of one process wait for each other's lock on the file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

from deadletter.errors import StoreUnreachable
from deadletter.store.changes import identity
from deadletter.store.database_errors import in_our_words
from deadletter.store.engine import LOCK_LIMIT_S, WRITES, new_engine
from deadletter.store.letters.log_transfer import LOG_PAGES, LogTransfer
from deadletter.store.preparing import migrate
from deadletter.store.store_address import SqliteAddress, StoreAddress, parse

CONNECTIONS: Final = 4
_LOCK_PAUSE_S: Final = 0.05
_FILE: Final = "deadletter-file"
_CACHE: Final = "PRAGMA cache_size = -16000"
"""16 MB a connection: an index is written all over."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def uncut(method: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Who is cancelled while the store writes waits until it has written, or has given up: a statement that
    runs in SQLite's thread cannot be called back, and would leave its lock behind."""

    @wraps(method)
    async def whole(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        writing = asyncio.create_task(method(*args, **kwargs))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            if not writing.cancelled():
                writing.exception()  # seen: nobody is left to be told
            raise

    return whole


class LetterConnections:
    """`made`: how many connections there were so far. Behind a new one there may be another file."""

    def __init__(self, address: StoreAddress, engine: AsyncEngine) -> None:
        self.address: Final = address
        self.made: int = 0
        self.engine: Final = engine
        self._turn = asyncio.Lock()
        self.log: Final = LogTransfer(address) if isinstance(address, SqliteAddress) else None
        """SQLite's."""
        event.listen(engine.sync_engine, "connect", self._connected)

    def _connected(self, *_told: object) -> None:
        self.made += 1

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        with in_our_words(self.address):
            async with self.engine.connect() as connection:
                await self._same_file(connection)
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """On SQLite one after the other, in the order in which they came: who waits for the file's lock tries
        now and then, and whoever comes later may be quicker."""
        alone = self._turn if isinstance(self.address, SqliteAddress) else nullcontext()
        with in_our_words(self.address):
            async with alone, self.engine.connect() as connection:
                await self._same_file(connection)
                await connection.execution_options(**WRITES)
                async with connection.begin():
                    yield connection
                    await self._same_file(connection)
        if self.log is not None:
            self.log.wrote()

    async def _same_file(self, connection: AsyncConnection) -> None:
        """A file that was moved or deleted takes everything, and nobody ever sees it again."""
        if isinstance(self.address, SqliteAddress):
            raw = await connection.get_raw_connection()
            opened = raw.info.get(_FILE)
            if opened != identity(self.address):
                await connection.invalidate()
                raise StoreUnreachable(
                    f"the store {self.address} is no longer the file it was, somebody moved or replaced it; "
                    "nothing was done"
                )


@asynccontextmanager
async def open_connections(url: str, *, prepare: bool) -> AsyncIterator[LetterConnections]:
    """SQLite keeps a log beside the file (WAL), so that nobody who reads waits for one who writes."""
    address = parse(url)
    if prepare:
        await migrate(url)
    engine = new_engine(address, pool=CONNECTIONS)
    if isinstance(address, SqliteAddress):
        event.listen(engine.sync_engine, "connect", partial(_opened, address))
    try:
        if isinstance(address, SqliteAddress) and prepare:
            await _keep_a_log(address, engine)
        connections = LetterConnections(address, engine)
        try:
            yield connections
        finally:
            if connections.log is not None:
                await connections.log.ended()
    finally:
        await engine.dispose()


async def _keep_a_log(address: SqliteAddress, engine: AsyncEngine) -> None:
    """SQLite does not wait for anybody when it changes its journal: so we do."""
    until = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            with in_our_words(address):
                async with engine.connect() as connection:
                    raw = await connection.get_raw_connection()
                    assert raw.driver_connection is not None
                    await raw.driver_connection.execute("PRAGMA journal_mode=WAL")
        except StoreUnreachable:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(_LOCK_PAUSE_S)
        else:
            return


def _opened(address: SqliteAddress, connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    record.info[_FILE] = identity(address)
    cursor = connection.cursor()
    cursor.execute(_CACHE)
    cursor.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    cursor.close()
