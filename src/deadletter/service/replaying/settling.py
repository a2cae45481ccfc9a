"""What the broker said of a replay's letters, brought into the store: in batches, one after the other."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from deadletter.errors import StoreError, StoreUnreachable
from deadletter.service.replaying.store_access import StoreAccess

BATCH: Final = 5_000
GATHER_S: Final = 0.05
"""A transaction costs the same for one letter as for a hundred: so long it waits for more of them."""


class Settling:
    """Of one replay. Nothing that was said is forgotten until the store has it."""

    def __init__(self, replay: int, access: StoreAccess, *, holder: str) -> None:
        """`holder`: this instance, as the lease names it."""
        self._replay = replay
        self._holder = holder
        self._access = access
        self._sent: list[int] = []
        self._refused: dict[int, str] = {}
        self._doubtful: list[int] = []
        self._over = False
        self._came = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """How many the store has not been told of."""
        return len(self._sent) + len(self._refused) + len(self._doubtful)

    def sent(self, rows: list[int]) -> None:
        self._sent += rows
        self._arrive()

    def refused(self, row: int, why: str) -> None:
        self._refused[row] = why
        self._arrive()

    def doubtful(self, rows: list[int]) -> None:
        self._doubtful += rows
        self._arrive()

    def _arrive(self) -> None:
        self._idle.clear()
        self._came.set()

    async def run(self) -> None:
        """Until it is cancelled, or the service ends and the store is away."""
        self._over = False
        if self.waiting:  # it was cut before the store knew them
            self._arrive()
        try:
            while True:
                await self._came.wait()
                await asyncio.sleep(GATHER_S)
                self._came.clear()
                while self.waiting:
                    await self._settle()
                if not self._came.is_set():
                    self._idle.set()
        finally:
            self._over = True  # nobody would ever say that it is idle
            self._idle.set()

    async def drained(self) -> None:
        """Until the store knows everything. StoreUnreachable: nobody tells it any more."""
        await self._idle.wait()
        if self._over and self.waiting:
            raise StoreUnreachable("the store is away, and the service ends")

    async def last(self) -> None:
        """One more try, when nobody runs it any more."""
        while self.waiting:
            try:
                await self._settle()
            except StoreError:
                return  # whoever has it next finds them as being sent: they are doubtful then

    async def _settle(self) -> None:
        sent, refused, doubtful = (
            self._sent[:BATCH],
            dict(list(self._refused.items())[:BATCH]),
            self._doubtful,
        )
        at_ms = time.time_ns() // 1_000_000
        self._doubtful = []
        try:
            await self._access.ask(
                lambda store: store.settled(
                    self._replay, sent, refused, at_ms=at_ms, doubtful=doubtful, holder=self._holder
                )
            )
        except BaseException:
            self._doubtful = doubtful + self._doubtful
            raise
        del self._sent[: len(sent)]
        for row in refused:
            del self._refused[row]
