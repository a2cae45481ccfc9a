"""The store as replays ask it: whoever asks gets an answer, however long the store is away.

That it is away is said (`store:replays`); nothing is sent meanwhile, and nothing is lost: what was published
and not noted is noted when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from deadletter.errors import StoreError, StoreUnreachable
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble
from deadletter.store.replays.replay_store import ReplayStore

STORE_REPLAYS: Final = "store:replays"
PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 5.0

_T = TypeVar("_T")


class StoreAccess:
    """`current` gives the store while it is open; None: it is away."""

    def __init__(
        self, current: Callable[[], ReplayStore | None], emit: Callable[[ServiceEvent], None]
    ) -> None:
        self._current = current
        self._emit = emit
        self._failing = False
        self._giving_up = asyncio.Event()

    def hurry(self) -> None:
        """The service ends: nobody waits for a store that is away."""
        self._giving_up.set()

    async def once(self, what: Callable[[ReplayStore], Awaitable[_T]]) -> _T:
        """Raises a StoreError when the store does not answer, and says so."""
        store = self._current()
        try:
            if store is None:
                raise StoreUnreachable("the store is away")
            answer = await what(store)
        except StoreError as error:
            self._failing = True
            why = f"{error}; replays wait"
            self._emit(Trouble(what=STORE_REPLAYS, why=why, seconds=PAUSE_S))
            raise
        if self._failing:
            self._failing = False
            self._emit(Recovered(what=STORE_REPLAYS))
        return answer

    async def ask(self, what: Callable[[ReplayStore], Awaitable[_T]]) -> _T:
        """Until it answers. What is asked has to be right also when it is asked twice."""
        pause_s = PAUSE_S
        while True:
            try:
                return await self.once(what)
            except StoreError:
                if self._giving_up.is_set():
                    raise
            try:
                async with asyncio.timeout(pause_s):
                    await self._giving_up.wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
