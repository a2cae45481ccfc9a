"""What happens at the door, written into the store, and what other instances wrote there.

The store may be away or slow, and nobody waits for it at the door: what could not be written is kept and
tried again with the next look, and nobody signs in again because it is not known who signed out elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from deadletter.desk.answers.desk_route import JournalSource
from deadletter.errors import StoreError
from deadletter.operations.journal.journal import Journal
from deadletter.store.journal.door_store import KnownKey

LOOK_S: Final = 2.0
"""So long a session that was ended on another instance may still be taken for one here."""
_WAIT_S: Final = 1.0
_LATE_MOST: Final = 1_000

_Entry: TypeAlias = Callable[[Journal], Awaitable[None]]


class DoorBook:
    """`journal` None: there is no store, and nothing is written. `clock` goes on evenly."""

    def __init__(self, journal: JournalSource | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._clock = clock
        self._late: deque[_Entry] = deque(maxlen=_LATE_MOST)
        self._at_work: asyncio.Task[None] | None = None
        self._looked_at: float | None = None
        self.ended: frozenset[str] = frozenset()
        """Sessions that were ended, here or elsewhere, as far as the store told."""

    async def noted(self, who: str, action: str, **detail: object) -> None:
        """For the audit."""
        await self._put(lambda journal: journal.noted(who, action, detail))

    async def end_session(self, session: str, until_ms: int) -> None:
        await self._put(lambda journal: journal.end_session(session, until_ms))

    async def keys_seen(self, now: Sequence[KnownKey], *, who: str) -> None:
        await self._put(lambda journal: journal.keys_seen(now, who=who))

    async def look(self) -> None:
        """Who signed out elsewhere, as of some seconds ago."""
        if self._journal is None:
            return
        if self._at_work is None and (self._looked_at is None or self._clock() - self._looked_at >= LOOK_S):
            self._looked_at = self._clock()
            self._begin()
        if self._at_work is not None:
            await self._bounded()

    async def _put(self, entry: _Entry) -> None:
        if self._journal is None:
            return
        self._late.append(entry)
        if self._at_work is None:
            self._begin()
        await self._bounded()

    def _begin(self) -> None:
        self._at_work = asyncio.create_task(self._work(), name="door book")
        self._at_work.add_done_callback(self._done)

    def _done(self, work: asyncio.Task[None]) -> None:
        self._at_work = None
        if not work.cancelled():
            work.result()  # a mistake of ours: the loop tells it

    async def _bounded(self) -> None:
        if self._at_work is not None:
            await asyncio.wait({self._at_work}, timeout=_WAIT_S)

    async def _work(self) -> None:
        assert self._journal is not None
        try:
            journal = await self._journal()
            while True:
                while self._late:
                    await self._write(journal)
                self.ended = await journal.ended_sessions()
                if not self._late:
                    return
        except StoreError:
            return  # with the next look

    async def _write(self, journal: Journal) -> None:
        entry = self._late.popleft()
        try:
            await entry(journal)
        except StoreError:
            self._late.appendleft(entry)
            raise
