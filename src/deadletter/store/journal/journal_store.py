"""The journal of one store: the only door to it. Whatever the database raises becomes a StoreError."""

from __future__ import annotations

from collections.abc import Sequence

from deadletter.store.journal import audit_list, instances, samples
from deadletter.store.journal.audit_list import AuditEntry, AuditQuery
from deadletter.store.journal.instances import InstanceSeen
from deadletter.store.journal.samples import QueueSample, QueueSeries
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_store import LetterStore


class JournalStore:
    """It shares the connections of the letters, and on SQLite their turn to write."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    async def audit(self, query: AuditQuery) -> list[AuditEntry]:
        """The newest first; one more than `limit` where there are more."""
        async with self._reading() as connection:
            return await audit_list.listed(connection, query)

    @uncut
    async def put_samples(self, some: Sequence[QueueSample]) -> None:
        async with self._writing() as connection:
            await samples.put(connection, some)

    @uncut
    async def fold_samples(self) -> int:
        """Old minutes become hours, old hours go; 0: there are no more."""
        async with self._writing() as connection:
            return await samples.fold(connection, now_ms=self._now_ms())

    @uncut
    async def put_instance(self, one: InstanceSeen) -> None:
        async with self._writing() as connection:
            await instances.put(connection, one)

    async def instances(self) -> list[InstanceSeen]:
        """Those seen last first."""
        async with self._reading() as connection:
            return await instances.listed(connection)

    async def queues_sampled(
        self, *, since_ms: int, vhost: str | None = None, queue: str | None = None
    ) -> list[tuple[str, str]]:
        """Vhosts and names of queues with samples since then, in the order of their names."""
        async with self._reading() as connection:
            return await samples.queues_sampled(connection, since_ms=since_ms, vhost=vhost, queue=queue)

    async def series(
        self, some: Sequence[tuple[str, str]], *, from_ms: int, until_ms: int, step_min: int
    ) -> list[QueueSeries]:
        async with self._reading() as connection:
            return await samples.series(
                connection, some, from_ms=from_ms, until_ms=until_ms, step_min=step_min
            )
