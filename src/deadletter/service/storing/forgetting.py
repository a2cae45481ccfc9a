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


async def forget(
    store: LetterStore,
    retention: Mapping[tuple[str, str], Retention],
    emit: Callable[[ServiceEvent], None],
    *,
    grouping: Grouping = GROUPED_BY_DEFAULT,
    look_s: float = LOOK_S,
) -> None:
    """For ever. `retention`: by vhost and queue. That the store is away is told by who brings letters; other
    trouble is told here."""
    fates = {queue: LetterFate(step=Step.FORGOTTEN, source=queue) for _, queue in retention}
    failing = False
    seen: GroupingSeen | None = None
    while True:
        try:
            for (vhost, queue), kept in retention.items():
                gone = await _in_portions(partial(store.forget_some, queue, kept, vhost=vhost))
                if gone:
                    emit(Confirmed(fates={fates[queue]: gone}))
            await _in_portions(store.fold_counts)
            await _in_portions(store.judge_some, rest=JUDGED_REST)
            now = await store.regrouping.told(grouping)
            was, seen = seen, GroupingSeen(digest=now.digest, behind=now.stage is not RegroupStage.DONE)
            if seen != was and (seen.behind or was is not None):
                emit(seen)
        except DeadletterError as error:
            failing = True
            emit(Trouble(what=STORE_RETENTION, why=str(error), seconds=look_s))
        except Exception as error:  # noqa: BLE001 -- it is said, and letters go on coming
            failing = True
            emit(Trouble(what=STORE_RETENTION, why=mistake(error), seconds=look_s))
        else:
            if failing:
                failing = False
                emit(Recovered(what=STORE_RETENTION))
        await asyncio.sleep(look_s)


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
