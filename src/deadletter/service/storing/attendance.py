"""Says in the store, every minute, that this instance is there: so every page knows of all of them.

Nothing depends on it: a store that is away is told by who needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from deadletter.errors import DeadletterError
from deadletter.operations.records.store_records import StoreRecords
from deadletter.service.storing.forgetting import mistake
from deadletter.service.telling.service_events import ServiceEvent, Trouble
from deadletter.store.journal.instances import InstanceSeen
from deadletter.store.journal.journal_store import JournalStore

EVERY_S: Final = 60.0
STORE_INSTANCES: Final = "store:instances"
"""The name of the trouble when nobody can be told."""
FIRST_S: Final = 5.0
"""By then it is mostly ready."""


async def attend(
    store: Callable[[], Awaitable[StoreRecords]],
    seen: Callable[[], InstanceSeen],
    emit: Callable[[ServiceEvent], None],
    *,
    first_s: float = FIRST_S,
) -> None:
    """Ends only by being cancelled; a mistake of ours is told, and the service goes on."""
    pause_s = first_s
    while True:
        await asyncio.sleep(pause_s)
        try:
            with suppress(DeadletterError):
                await JournalStore((await store()).opened).put_instance(seen())
        except Exception as error:  # noqa: BLE001 -- it is said, and letters go on
            emit(Trouble(what=STORE_INSTANCES, why=mistake(error), seconds=EVERY_S))
        pause_s = EVERY_S
