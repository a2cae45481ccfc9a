"""Whether anything is to be replayed at all, asked once for all vhosts of a service.

Each vhost has a replayer, and each looks every second for replays that are its own or nobody's. Mostly there
are none, and with fifty vhosts those looks were a sixth of a core. So what one of them saw serves the others
for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import names
from deadletter.store.replays.replay_tables import replays

FRESH_S: Final = 0.5
"""So old what was seen may be: a replay that was just begun waits so much longer for the first look at it."""


class UnderWay:
    """The vhosts of replays that have not ended."""

    def __init__(self, reading: Callable[[], AbstractAsyncContextManager[AsyncConnection]]) -> None:
        self._reading = reading
        self._looking = asyncio.Lock()
        self._vhosts: frozenset[str] = frozenset()
        self._seen_at = -FRESH_S

    async def any_of(self, vhosts: Sequence[str]) -> bool:
        """Whether one of these has any."""
        async with self._looking:
            if monotonic() >= self._seen_at + FRESH_S:
                self._vhosts = await self._look()
                self._seen_at = monotonic()
        return not self._vhosts.isdisjoint(map(clean, vhosts))

    async def _look(self) -> frozenset[str]:
        asked = select(names.c.name).join(replays, replays.c.vhost == names.c.id)
        async with self._reading() as connection:
            rows = await connection.execute(asked.where(replays.c.ended_ms.is_(None)).distinct())
            return frozenset(str(name) for (name,) in rows)
