"""Batches that are read before it is their turn to be written.

Writing takes longer now and then, while PostgreSQL brings its index of words up to date or SQLite its log
into its file. Reading goes on meanwhile, some batches ahead; so neither of two cores waits for the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

AHEAD: Final = 2
"""So many batches are read at most while one is written."""

_T = TypeVar("_T")


class ReadAhead(Generic[_T]):
    """Reads from when it is made until its `end`. `read`: the next batch, whenever there is one."""

    def __init__(self, read: Callable[[], Awaitable[_T]], *, most: int = AHEAD) -> None:
        self._read = read
        self._most = most
        self._ready: deque[_T] = deque()
        self._came, self._went = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.ensure_future(self._go())

    async def next(self) -> _T:
        """Raises what reading failed with, once everything before it was taken."""
        while not self._ready:
            if self._reading.done():
                self._reading.result()
            self._came.clear()
            await self._came.wait()
        self._went.set()
        return self._ready.popleft()

    async def end(self) -> list[_T]:
        """Those that nobody took. What is being read is cut off."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        left = list(self._ready)
        self._ready.clear()
        return left

    async def _go(self) -> None:
        try:
            while True:
                self._ready.append(await self._read())
                self._came.set()
                while len(self._ready) >= self._most:
                    self._went.clear()
                    await self._went.wait()
        finally:
            self._came.set()
