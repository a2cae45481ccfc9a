"""Whether anything in the store changed, whoever changed it: asked in some microseconds, never by hashing.

* **SQLite**: `PRAGMA data_version`, on a connection of its own that never writes: another number as soon as
  any connection to the file has committed.
* **PostgreSQL**: which transactions are visible (`txid_current_snapshot`). Two questions with the same answer
  see the same rows.

Such a revision means nothing to another process, or after a restart; so it has a name of this one before it.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.changes import identity
from deadletter.store.database_errors import in_our_words
from deadletter.store.engine import new_engine
from deadletter.store.journal.journal_tables import samples
from deadletter.store.letters.letter_tables import audit
from deadletter.store.replays.replay_tables import replay_counts, replays
from deadletter.store.store_address import SqliteAddress, StoreAddress

_SQLITE: Final = text("PRAGMA data_version")
_POSTGRES: Final = text("SELECT CAST(txid_current_snapshot() AS text)")
_LETTERS_SQLITE: Final = text("SELECT last FROM deadletter_ids")
_LETTERS_POSTGRES: Final = text("SELECT last_value + CAST(is_called AS int) FROM deadletter_letter_ids")
_ACTIVE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMarks:
    """How far each part of the store is. Another value: something happened there."""

    letters: int
    audit: int
    replays: tuple[object, ...]
    samples: int


class StoreRevision:
    """Of one store. Its connection is opened when it is first asked, and again where it was lost."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._name = ""
        self._file: tuple[int, int] | None = None
        self._connection: AsyncConnection | None = None
        self._open = AsyncExitStack()
        self._asking = asyncio.Lock()

    async def now(self) -> str:
        """Another one after every change. StoreError where the store does not answer."""
        async with self._asking:
            connection = await self._connected()
            sqlite = isinstance(self._address, SqliteAddress)
            try:
                with in_our_words(self._address):
                    async with connection.begin():
                        told = await connection.scalar(_SQLITE if sqlite else _POSTGRES)
            except BaseException:
                await self._lose()
                raise
            return f"{self._name}.{told}"

    async def marks(self) -> StoreMarks:
        """Some more questions, for who knows that the revision is another one."""
        async with self._asking:
            connection = await self._connected()
            try:
                with in_our_words(self._address):
                    async with connection.begin():
                        return await _marks(connection)
            except BaseException:
                await self._lose()
                raise

    async def close(self) -> None:
        async with self._asking:
            await self._lose()

    async def _connected(self) -> AsyncConnection:
        file = identity(self._address) if isinstance(self._address, SqliteAddress) else None
        if self._connection is not None and file == self._file:
            return self._connection
        await self._lose()
        with in_our_words(self._address):
            engine = new_engine(self._address)
            self._open.push_async_callback(engine.dispose)
            self._connection = await self._open.enter_async_context(engine.connect())
        self._file = file
        self._name = secrets.token_hex(4)
        return self._connection

    async def _lose(self) -> None:
        self._connection = None
        lost, self._open = self._open, AsyncExitStack()
        await lost.aclose()


async def _marks(connection: AsyncConnection) -> StoreMarks:
    sqlite = connection.dialect.name == "sqlite"
    active = select(replays.c.id).where(replays.c.ended_ms.is_(None)).order_by(replays.c.id.desc())
    some = active.limit(_ACTIVE).scalar_subquery()
    told = select(replays.c.id, replays.c.state, replays.c.letters).where(replays.c.id.in_(some))
    counted = select(replay_counts).where(replay_counts.c.replay.in_(some))
    return StoreMarks(
        letters=int(await connection.scalar(_LETTERS_SQLITE if sqlite else _LETTERS_POSTGRES) or 0),
        audit=int(await connection.scalar(select(func.max(audit.c.id))) or 0),
        replays=(
            *(tuple(row) for row in (await connection.execute(told)).all()),
            *(tuple(row) for row in (await connection.execute(counted)).all()),
        ),
        samples=int(
            await connection.scalar(select(func.max(samples.c.minute)).where(samples.c.span == 1)) or 0
        ),
    )
