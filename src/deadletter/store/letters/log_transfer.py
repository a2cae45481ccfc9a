"""SQLite's log brought into its file beside the writing.

Pages that are written wait in a log. By default whoever makes it a thousand pages long brings them all into
the file before its commit returns: a tenth of a second and more with a million letters, now and then, while
letters wait. So they are brought there in between, by a connection of its own that nobody waits for. Who
writes finds the rest done, and only begins the log anew. Nothing depends on it: a page in the log is as safe
as in the file, and where this fails whoever writes does it, as ever.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import Final
from urllib.parse import quote

import aiosqlite

from deadletter.errors import StoreError
from deadletter.store.changes import identity
from deadletter.store.store_address import SqliteAddress

LOG_PAGES: Final = 8_000
"""So long, 32 MB, the log is when who writes ends it, instead of a thousand."""
PAUSE_S: Final = 0.1
"""A page that is written many times in between is brought once."""
_END_S: Final = 2.0
_PASSIVE: Final = "PRAGMA wal_checkpoint(PASSIVE)"
"""Waits for nobody, and nobody waits for it."""


class LogTransfer:
    """Of one file."""

    def __init__(self, address: SqliteAddress) -> None:
        self._address = address
        self._wrote = False
        self._going: asyncio.Task[None] | None = None

    def wrote(self) -> None:
        """Somebody committed."""
        self._wrote = True
        if self._going is None or self._going.done():
            self._going = asyncio.create_task(self._go())

    async def ended(self) -> None:
        """When nothing is under way any more. It is not waited for long: who closes the file last does it."""
        self._wrote = False
        if self._going is not None:
            _, late = await asyncio.wait({self._going}, timeout=_END_S)
            if late:
                self._going.cancel()
                await asyncio.wait(late)

    async def _go(self) -> None:
        """As long as somebody writes."""
        file = f"file:{quote(str(self._address.path.absolute()))}?mode=rw"
        with suppress(sqlite3.Error, OSError, StoreError):
            opened = identity(self._address)
            async with aiosqlite.connect(file, uri=True, isolation_level=None) as connection:
                while self._wrote and identity(self._address) == opened:
                    self._wrote = False
                    async with connection.execute(_PASSIVE) as told:
                        await told.fetchall()
                    await asyncio.sleep(PAUSE_S)
