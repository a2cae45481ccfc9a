"""The housekeeping of a store: letters whose time is over are forgotten, a few at a time; old counts are
folded; what the past of groups tells of their category is written down; and it is told whether stored letters
follow the rules in force.

Each portion is a transaction of its own, and between two there is a pause at least as long as it took: who
writes letters waits for one portion at most. Several instances may do this; on PostgreSQL one does, and the
others find it busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.grouping.retention import Retention
from deadletter.core.letter.header_values import shown
from deadletter.errors import DeadletterError
from deadletter.service.telling.service_events import (
    Confirmed,
    GroupingSeen,
    Recovered,
    ServiceEvent,
    Trouble,
)
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import RegroupStage

LOOK_S: Final = 10.0
PAUSE_S: Final = 0.02
JUDGED_REST: Final = 4.0
"""Judging groups waits so many times as long as it took: nobody is in a hurry for it, and letters come."""
STORE_RETENTION: Final = "store:retention"
"""The name of the trouble when nothing can be forgotten."""


class Forgetting:
    """What is to be forgotten, and whether that goes well: what was told of it outlives a store that is
    opened anew, and is taken back when it no longer holds. `retention`: by vhost and queue."""

    def __init__(
        self,
        retention: Mapping[tuple[str, str], Retention],
        emit: Callable[[ServiceEvent], None],
        *,
        grouping: Grouping = GROUPED_BY_DEFAULT,
        look_s: float = LOOK_S,
    ) -> None:
        self._retention = retention
        self._emit = emit
        self._grouping = grouping
        self._look_s = look_s
        self._fates = {queue: LetterFate(step=Step.FORGOTTEN, source=queue) for _, queue in retention}
        self._failing = False
        self._seen: GroupingSeen | None = None

    async def run(self, store: LetterStore) -> None:
        """For ever. A store that is away is told here, too: there may be nobody who brings letters."""
        while True:
            try:
                await self._once(store)
            except DeadletterError as error:
                self._fails(str(error))
            except Exception as error:  # noqa: BLE001 -- it is said, and letters go on coming
                self._fails(mistake(error))
            else:
                if self._failing:
                    self._failing = False
                    self._emit(Recovered(what=STORE_RETENTION))
            await asyncio.sleep(self._look_s)

    async def _once(self, store: LetterStore) -> None:
        for (vhost, queue), kept in self._retention.items():
            gone = await _in_portions(partial(store.forget_some, queue, kept, vhost=vhost))
            if gone:
                self._emit(Confirmed(fates={self._fates[queue]: gone}))
        await _in_portions(store.fold_counts)
        await _in_portions(store.judge_some, rest=JUDGED_REST)
        now = await store.regrouping.told(self._grouping)
        was = self._seen
        self._seen = GroupingSeen(digest=now.digest, behind=now.stage is not RegroupStage.DONE)
        if self._seen != was and (self._seen.behind or was is not None):
            self._emit(self._seen)

    def _fails(self, why: str) -> None:
        self._failing = True
        self._emit(Trouble(what=STORE_RETENTION, why=why, seconds=self._look_s))


def mistake(error: Exception) -> str:
    """What is said of one that nobody thought of."""
    return f"a mistake of ours, please report it: {type(error).__name__}: {shown(str(error), 300)}"


async def _in_portions(portion: Callable[[], Awaitable[int]], *, rest: float = 1.0) -> int:
    loop = asyncio.get_running_loop()
    total = 0
    while True:
        started = loop.time()
        done = await portion()
        if not done:
            return total
        total += done
        await asyncio.sleep(max(PAUSE_S, rest * (loop.time() - started)))
