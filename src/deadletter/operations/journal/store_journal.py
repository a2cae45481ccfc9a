"""The journal, asked of the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, TypeAlias

from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.errors import UsageError
from deadletter.operations.journal.journal import (
    POINTS,
    QUEUES,
    THERE_MS,
    AuditPage,
    InstancesTold,
    InstanceTold,
    SamplePage,
    SampleQuery,
)
from deadletter.operations.records.store_records import StoreRecords
from deadletter.store.journal.answers import AnswerStore, KeptAnswer
from deadletter.store.journal.audit_list import AuditQuery
from deadletter.store.journal.door_store import DoorStore, KnownKey
from deadletter.store.journal.journal_store import JournalStore
from deadletter.store.journal.revision import StoreMarks, StoreRevision
from deadletter.store.journal.samples import HOURS_KEPT_MIN
from deadletter.store.journal.view_table import SavedView, ViewStore
from deadletter.store.letters.letter_store import LetterStore

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1_440)

OpenedSource: TypeAlias = Callable[[], Awaitable[StoreRecords]]


class StoreJournal:
    """Of an open store. `revision_of` has a connection of its own: close it."""

    def __init__(self, store: LetterStore) -> None:
        self._store = store
        self._journal = JournalStore(store)
        self._answers = AnswerStore(store)
        self._door = DoorStore(store)
        self._views = ViewStore(store)
        self.revision_of: Final = StoreRevision(store.address)

    async def audit(self, query: AuditQuery) -> AuditPage:
        if not 0 < query.limit <= MAX_LIMIT:
            raise UsageError(f"limit: expected 1 to {MAX_LIMIT:,}, got {query.limit}")
        found = await self._journal.audit(query)
        shown = tuple(found[: query.limit])
        return AuditPage(entries=shown, more=shown[-1].id if len(found) > query.limit else None)

    async def samples(self, query: SampleQuery) -> SamplePage:
        until_ms = self._store.now_ms() if query.until_ms is None else query.until_ms
        from_ms = max(0, until_ms - _DAY_MS) if query.from_ms is None else query.from_ms
        if from_ms > until_ms:
            raise UsageError(f"from_ms: expected a time before until_ms, got {from_ms} after {until_ms}")
        if not (0 < query.points <= POINTS and 0 < query.limit <= QUEUES):
            raise UsageError(f"expected 1 to {POINTS} points of 1 to {QUEUES} queues")
        from_ms = max(from_ms, until_ms - HOURS_KEPT_MIN * _MINUTE_MS)  # older ones are gone
        wanted = (until_ms - from_ms) / _MINUTE_MS / query.points
        step_min = next((step for step in _STEPS_MIN if step >= wanted), _STEPS_MIN[-1])
        known = await self._journal.queues_sampled(since_ms=from_ms, vhost=query.vhost, queue=query.queue)
        some = known[query.after : query.after + query.limit]
        series = await self._journal.series(some, from_ms=from_ms, until_ms=until_ms, step_min=step_min)
        ended = query.after + query.limit
        return SamplePage(
            from_ms=from_ms,
            until_ms=until_ms,
            step_ms=step_min * _MINUTE_MS,
            queues=tuple(replace(one, points=one.points[-POINTS - 1 :]) for one in series),
            more=ended if ended < len(known) else None,
        )

    async def instances(self) -> InstancesTold:
        since_ms = self._store.now_ms() - THERE_MS
        return InstancesTold(
            instances=tuple(
                InstanceTold(**asdict(one), there=one.seen_ms >= since_ms and one.stage != "stopped")
                for one in await self._journal.instances()
            )
        )

    async def noted(self, who: str, action: str, detail: Mapping[str, object]) -> None:
        await self._store.noted(who, action, dict(detail))

    async def revision(self) -> str:
        return await self.revision_of.now()

    async def marks(self) -> StoreMarks:
        """How far each part of the store is."""
        return await self.revision_of.marks()

    async def take_key(self, actor: str, key: str, digest: str) -> KeptAnswer | None:
        return await self._answers.take(actor, key, digest)

    async def keep_answer(self, actor: str, key: str, *, status: int, kind: str, body: bytes) -> None:
        await self._answers.keep(actor, key, status=status, kind=kind, body=body)

    async def give_up_key(self, actor: str, key: str) -> None:
        await self._answers.give_up(actor, key)

    async def views(self, owner: str, *, others: bool) -> tuple[SavedView, ...]:
        return await self._views.seen_by(owner, others=others)

    async def save_view(self, view: SavedView) -> SavedView:
        return await self._views.save(view)

    async def remove_view(self, owner: str, name: str) -> SavedView:
        return await self._views.remove(owner, name)

    async def end_session(self, session: str, until_ms: int) -> None:
        await self._door.end_session(session, until_ms)

    async def ended_sessions(self) -> frozenset[str]:
        return await self._door.ended_sessions()

    async def keys_seen(self, now: Sequence[KnownKey], *, who: str) -> None:
        await self._door.keys_seen(now, who=who)


class LateJournal:
    """The journal of a store that is opened when it is first asked for."""

    def __init__(self, records: OpenedSource) -> None:
        self._records = records
        self._opening = asyncio.Lock()
        self._opened: StoreJournal | None = None

    async def __call__(self) -> StoreJournal:
        async with self._opening:
            if self._opened is None:
                self._opened = StoreJournal((await self._records()).opened)
            return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.revision_of.close()
