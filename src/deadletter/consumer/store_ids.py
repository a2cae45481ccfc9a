"""Ids in the store, in the table `deadletter_handled`: SQLite for one machine, PostgreSQL for several.

A handler with a parameter of type `Transaction` has its writes committed together with the mark. On SQLite
such handlers run one after the other, because a file has one writer at a time; keep them short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from deadletter.consumer.idempotency import DAY_S, Seen, Transaction, kept_s
from deadletter.consumer.publishing.publications import Publication
from deadletter.errors import TableMissing, UsageError
from deadletter.store.store_address import SqliteAddress, parse

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

CLEAN_S: Final = 60.0
"""How often ids that were kept long enough are forgotten."""


class StoreIds:
    """Ids in a database. `keep`: how long, in seconds; `connections`: how many may be open at once."""

    def __init__(
        self,
        url: str,
        *,
        keep: float | timedelta = 7 * DAY_S,
        connections: int = 10,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= connections <= 1000:
            raise UsageError(f"StoreIds: connections: expected from 1 to 1000, got {connections!r}")
        self._url = url
        self._address = parse(url)
        self._keep_ms = int(kept_s("StoreIds", keep) * 1000)
        self._connections = connections
        self._now = now
        self._engine: AsyncEngine | None = None
        self._writing: asyncio.Lock | None = None
        """SQLite: who waits here waits without a limit; for the file's own lock at most 5 s."""
        self._cleaned_at = 0.0
        self._publishes = False
        """Whether a handler published in a transaction: where none does, that table need not be there."""

    async def open(self) -> None:
        """Prepare the store. StoreError when it cannot be."""
        from deadletter.store.engine import new_engine
        from deadletter.store.preparing import migrate

        await migrate(self._url)
        self._writing = asyncio.Lock() if isinstance(self._address, SqliteAddress) else None
        self._engine = new_engine(self._address, pool=self._connections)
        self._cleaned_at = self._now()
        await self.clean()  # also shows that the table is there, where we may not create it

    async def close(self) -> None:
        """Close its connections."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    async def begin(self, queue: str, key: str) -> Seen:
        """Mark it as begun unless it is done, and tell what it was before."""
        await self._clean()
        async with self._connection() as connection:
            return await self._claim(connection, queue, key)

    async def done(self, queue: str, key: str) -> None:
        """Mark it as done."""
        async with self._connection() as connection:
            await self._mark_done(connection, queue, key)

    async def forget(self, queue: str, key: str) -> None:
        """The handler failed: whoever comes next begins anew."""
        from deadletter.store import handled_table

        async with self._connection() as connection:
            await handled_table.forget(connection, queue, key)

    @asynccontextmanager
    async def transaction(self, queue: str, key: str) -> AsyncIterator[Transaction | None]:
        """A transaction in which it is marked as done at the end; None: it is done already.

        What the handler's own statements raise goes through as it is.
        """
        from deadletter.store.database_errors import in_our_words

        await self._clean()
        async with AsyncExitStack() as stack:
            with in_our_words(self._address):
                connection = await stack.enter_async_context(self._open_connection())
                begun = await connection.begin()
                seen = await self._claim(connection, queue, key)
            if seen is Seen.DONE:
                await begun.rollback()
                yield None
                return
            transaction = Transaction(connection)
            try:
                yield transaction
            except BaseException:
                with in_our_words(self._address):
                    await begun.rollback()
                raise
            with in_our_words(self._address):
                await self._mark_done(connection, queue, key)
                if transaction.outgoing:
                    await self._keep(connection, queue, key, transaction.outgoing)
                await begun.commit()

    async def unsent(self, queue: str, key: str) -> Sequence[Publication]:
        """What a message that is done wanted to publish, and nobody knows that it was."""
        from deadletter.store import outbox_table

        try:
            async with self._connection() as connection:
                rows = await outbox_table.kept(connection, queue, key)
        except TableMissing:  # where we may not make it nobody has written to it either
            return []
        return [Publication(*row) for row in rows]

    async def sent(self, queue: str, key: str) -> None:
        """All of it is published."""
        from deadletter.store import outbox_table

        async with self._connection() as connection:
            await outbox_table.forget(connection, queue, key)

    async def _keep(
        self, connection: AsyncConnection, queue: str, key: str, outgoing: Sequence[Publication]
    ) -> None:
        from deadletter.store import outbox_table

        self._publishes = True
        until_ms = self._now_ms() + self._keep_ms
        await outbox_table.keep(
            connection, queue, key, [outbox_table.OutboxRow(*one) for one in outgoing], until_ms=until_ms
        )

    async def clean(self) -> int:
        """Forget ids that were kept long enough, a good number of them; how many that were."""
        from deadletter.store import handled_table, outbox_table

        async with self._connection() as connection:
            if self._publishes:
                await outbox_table.clean(connection, now_ms=self._now_ms())
            return await handled_table.clean(connection, now_ms=self._now_ms())

    async def _clean(self) -> None:
        now = self._now()
        if now - self._cleaned_at >= CLEAN_S:
            self._cleaned_at = now
            await self.clean()

    async def _claim(self, connection: AsyncConnection, queue: str, key: str) -> Seen:
        from deadletter.store import handled_table

        now_ms = self._now_ms()
        state = await handled_table.claim(
            connection, queue, key, now_ms=now_ms, until_ms=now_ms + self._keep_ms
        )
        match state:
            case None:
                return Seen.NEW
            case handled_table.HandledState.BEGUN:
                return Seen.BEGUN
            case handled_table.HandledState.DONE:
                return Seen.DONE

    async def _mark_done(self, connection: AsyncConnection, queue: str, key: str) -> None:
        from deadletter.store import handled_table

        now_ms = self._now_ms()
        await handled_table.mark(
            connection,
            queue,
            key,
            handled_table.HandledState.DONE,
            now_ms=now_ms,
            until_ms=now_ms + self._keep_ms,
        )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        """One short transaction of ours."""
        from deadletter.store.database_errors import in_our_words

        with in_our_words(self._address):
            async with self._open_connection() as connection, connection.begin():
                yield connection

    @asynccontextmanager
    async def _open_connection(self) -> AsyncIterator[AsyncConnection]:
        from deadletter.store.engine import WRITES

        if self._engine is None:
            raise UsageError("StoreIds: expected open() before it is used; a Consumer does it when it serves")
        async with AsyncExitStack() as stack:
            if self._writing is not None:
                await stack.enter_async_context(self._writing)
            connection = await stack.enter_async_context(self._engine.connect())
            await connection.execution_options(**WRITES)
            yield connection

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
