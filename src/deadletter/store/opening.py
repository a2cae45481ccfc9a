"""The way into a store.

::

    async with open_store(url) as store:
        rows = await store.event_rows()

Opening prepares it: creates the file, runs the migrations. `prepare=False` takes it as it is and creates
nothing, for whoever only looks, or knows that it was prepared: a store that was there and now is empty is
then an error, and not an empty table.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, assert_never

from sqlalchemy.ext.asyncio import AsyncEngine

from deadletter.core.deciding.event_config import Row, check_new
from deadletter.store import changes, event_table
from deadletter.store.database_errors import in_our_words
from deadletter.store.engine import new_engine
from deadletter.store.preparing import migrate
from deadletter.store.store_address import PostgresAddress, SqliteAddress, StoreAddress, parse

_WATCH_LOCK_LIMIT_S: Final = 1.0
"""Who waits for a lock cannot be cancelled, so whoever watches for ever waits in small portions."""


class Store:
    """One store. When it does not do its part, every method raises a StoreError and nothing else."""

    def __init__(self, address: StoreAddress, engine: AsyncEngine) -> None:
        self.address: Final = address
        self._engine = engine

    async def event_rows(self) -> list[Row]:
        """The rows of `dlq_event_config`, the newest first."""
        with in_our_words(self.address):
            async with self._engine.connect() as connection:
                return await event_table.rows(connection)

    async def set_event(self, name: str, max_retries: int) -> None:
        """So many retries for this routing key: in the row that decides, or in a new one."""
        check_new(name, max_retries)
        with in_our_words(self.address):
            await event_table.put(self._engine, name, max_retries)

    async def remove_event(self, name: str) -> int:
        """Remove every row of this name; how many there were."""
        with in_our_words(self.address):
            return await event_table.remove(self._engine, name)

    async def changes(self) -> AsyncGenerator[list[Row], None]:
        """The rows as they are, then again within 2 s of any change, whoever made it. Ends only by an error.

        Leave it with `contextlib.aclosing`, as it holds a connection.
        """
        engine = new_engine(self.address, lock_limit_s=_WATCH_LOCK_LIMIT_S)
        match self.address:
            case SqliteAddress() as address:
                found = changes.sqlite_changes(engine, address)
            case PostgresAddress():
                found = changes.postgres_changes(engine)
            case _:
                assert_never(self.address)
        try:
            with in_our_words(self.address):
                async with aclosing(found):
                    async for rows in found:
                        yield rows
        finally:
            await engine.dispose()


@asynccontextmanager
async def open_store(url: str, *, prepare: bool = True) -> AsyncIterator[Store]:
    """The store at this URL. UsageError for a URL that is none, StoreError if it cannot be prepared."""
    address = parse(url)
    if prepare:
        await migrate(url)
    engine = new_engine(address)
    try:
        yield Store(address, engine)
    finally:
        await engine.dispose()
