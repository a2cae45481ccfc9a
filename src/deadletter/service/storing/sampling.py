"""How queues are, kept for days: what each look around sees is gathered by the minute, and written once.

The numbers are for charts. So nothing waits for them: a minute that the store did not take is lost, and that
the store is away is told by who brings letters. Of more queues than a bound those seen first are sampled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from deadletter.errors import DeadletterError, StoreRefused
from deadletter.operations.records.store_records import StoreRecords
from deadletter.service.storing.forgetting import mistake
from deadletter.service.telling.service_events import QueuesAlike, QueueSeen, Recovered, ServiceEvent, Trouble
from deadletter.store.journal.journal_store import JournalStore
from deadletter.store.journal.samples import QueueSample

QUEUES: Final = 2_000
PAUSE_S: Final = 0.05
STORE_SAMPLES: Final = "store:samples"
"""The name of the trouble when samples cannot be written."""


@dataclass(slots=True)
class _Minute:
    """A queue within one minute, as it was seen so far."""

    depth: int = 0
    depth_most: int = 0
    consumers: int = 0
    oldest_s: float | None = None
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    looks: int = 0

    def see(self, seen: QueueSeen) -> None:
        self.depth = seen.depth
        self.depth_most = max(self.depth_most, seen.depth)
        self.consumers = seen.consumers
        if seen.oldest_s is not None:
            self.oldest_s = max(self.oldest_s or 0.0, seen.oldest_s)
        self.in_per_s += max(0.0, seen.in_per_s)
        self.out_per_s += max(0.0, seen.out_per_s)
        self.looks += 1

    def sample(self, vhost: str, queue: str, minute: int) -> QueueSample:
        return QueueSample(
            vhost=vhost,
            queue=queue,
            minute=minute,
            depth=self.depth,
            depth_most=self.depth_most,
            consumers=self.consumers,
            oldest_s=self.oldest_s,
            in_per_s=self.in_per_s / self.looks,
            out_per_s=self.out_per_s / self.looks,
        )


class QueueSampler:
    """Listens; `run` it for as long as the service runs. `now_s`: the time of day."""

    def __init__(
        self, store: Callable[[], Awaitable[StoreRecords]], now_s: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._now_s = now_s
        self._seen: dict[tuple[str, str, int], _Minute] = {}

    def __call__(self, event: ServiceEvent) -> None:
        match event:
            case QueueSeen():
                self._see(event)
            case QueuesAlike(queues=queues):
                for one in queues:  # each look counts: what is kept is their mean
                    self._see(one)
            case _:
                pass

    def _see(self, event: QueueSeen) -> None:
        place = (event.vhost, event.queue, int(self._now_s() // 60))
        if place not in self._seen:
            if len(self._seen) >= QUEUES:
                return
            self._seen[place] = _Minute()
        self._seen[place].see(event)

    def over(self) -> list[QueueSample]:
        """Those of minutes that are over, once."""
        now = int(self._now_s() // 60)
        done = [place for place in self._seen if place[2] < now]
        return [self._seen.pop(place).sample(*place) for place in done]

    async def run(self, emit: Callable[[ServiceEvent], None]) -> None:
        """Ends only by being cancelled."""
        failing = False
        while True:
            await asyncio.sleep(60 - self._now_s() % 60)
            try:
                await self._write(self.over())
            except StoreRefused:
                pass  # a store that was given for policies alone keeps no samples
            except DeadletterError as error:
                failing = True
                why = f"{error}; charts of queues will have a gap"
                emit(Trouble(what=STORE_SAMPLES, why=why, seconds=60))
            except Exception as error:  # noqa: BLE001 -- it is said, and letters go on
                failing = True
                emit(Trouble(what=STORE_SAMPLES, why=mistake(error), seconds=60))
            else:
                if failing:
                    failing = False
                    emit(Recovered(what=STORE_SAMPLES))

    async def _write(self, some: list[QueueSample]) -> None:
        if not some:
            return
        journal = JournalStore((await self._store()).opened)
        await journal.put_samples(some)
        while await journal.fold_samples():  # noqa: ASYNC110 -- each is a portion, and others write between
            await asyncio.sleep(PAUSE_S)
