"""Stored letters, asked of the store itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from typing import Final, TypeAlias, TypeVar

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.core.grouping.stored_letter import StoredLetter, read_inside, stored_letter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.errors import NotStored, UsageError
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.operations.records.letter_told import LetterTold, tell
from deadletter.operations.records.records import (
    CHANGED_AT_ONCE,
    HOURS,
    SOURCE_CHARS,
    GroupChange,
    GroupLine,
    GroupPage,
    LettersChanged,
    LettersFound,
    LettersTaken,
    SplitDone,
    StoreTold,
    json_of,
)
from deadletter.operations.records.where_programs import Programs
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
)
from deadletter.store.store_address import address_text

_HOUR_MS: Final = 3_600_000
_T = TypeVar("_T")

GroupingSource: TypeAlias = Callable[[], Grouping]
"""The rules in force: a service may have read its file again."""


class StoreRecords:
    """The operations on an open store."""

    def __init__(
        self,
        store: LetterStore,
        programs: Programs,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        *,
        grouping: GroupingSource = lambda: GROUPED_BY_DEFAULT,
    ) -> None:
        self._store = store
        self._grouping = grouping
        self._programs = programs
        self._now_ms = now_ms

    async def store(self) -> StoreTold:
        return StoreTold(address=address_text(self._store.address))

    # -- looking -----------------------------------------------------------------------------------------
    async def groups(self, query: GroupQuery) -> GroupPage:
        _bounded(query.limit)
        found = await self._store.groups(replace(query, limit=query.limit + 1))
        more = query.offset + query.limit if len(found) > query.limit else None
        found = found[: query.limit]
        some = [one.id for one in found]
        last = self._now_ms() // _HOUR_MS
        first = last - HOURS + 1
        hours = await self._store.hours(some, since_ms=first * _HOUR_MS) if some else {}
        releases = await self._store.releases(some) if some else {}
        return GroupPage(
            groups=tuple(
                GroupLine(
                    **{one.name: getattr(group, one.name) for one in fields(GroupView)},
                    hours=tuple(hours.get(group.id, {}).get(hour, 0) for hour in range(first, last + 1)),
                    release=releases.get(group.id, ""),
                )
                for group in found
            ),
            more=more,
        )

    async def group(self, name: str) -> GroupDetail:
        return await self._store.group(name)

    async def grouping(self) -> GroupingTold:
        return await self._store.regrouping.told(self._grouping())

    async def preview(self) -> GroupingPreview:
        return await self._store.preview(self._grouping())

    async def letters(self, query: LetterQuery) -> LettersFound:
        _bounded(query.limit)
        where = None if query.where is None else await self._programs.question(query.where)
        page = await self._store.find(query, where=where)
        return LettersFound(
            letters=page.letters,
            more=page.more,
            looked_at=page.looked_at,
            unanswered=0 if where is None else where.unanswered,
        )

    async def facets(self, query: LetterQuery) -> Facets:
        where = None if query.where is None else await self._programs.question(query.where)
        told = await self._store.facets(query, where=where)
        return told if where is None else replace(told, unanswered=where.unanswered)

    async def letter(self, name: str) -> LetterTold:
        detail = await self._store.letter(name)
        group = await self._store.group(str(detail.row.group))
        return tell(detail, group.group)

    async def body(self, name: str) -> bytes:
        return read_inside((await self._store.letter(name)).letter).body

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        return await self._store.whole(_portion(ids), most_bytes=PORTION_BYTES)

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView:
        if change.state is None and change.category is None:
            raise UsageError("expected a state or a category to change, got neither")
        found = None
        if change.category is not None:
            found = await self._store.set_category(name, change.category, who=who)
        if change.state is not None:
            found = await self._store.set_state(name, change.state, who=who, until_ms=change.until_ms)
        assert found is not None
        return found

    async def note(self, name: str, text: str, *, who: str) -> GroupView:
        return await self._store.add_note(name, text, who=who)

    async def merge(self, into: str, other: str, *, who: str) -> GroupView:
        await self._store.merge(into, other, who=who)
        return (await self._store.group(into)).group

    async def split(self, key: str, *, who: str) -> SplitDone:
        await self._store.split(key, who=who)
        return SplitDone(key=key)

    async def regroup(self, *, who: str) -> GroupingTold:
        return await self._store.regrouping.go_on(self._grouping(), who=who)

    async def last_discard(self, who: str) -> DiscardTold:
        found = await self._store.last_discard(who)
        if found is None:
            raise NotStored(f"{who} has discarded nothing here")
        return found

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        return LettersChanged(letters=await self._store.discard(_portion(ids), who=who, why=why, run=run))

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        return LettersChanged(letters=await self._store.take_back(_portion(ids), who=who, why=why))

    async def put(
        self, letters: Sequence[tuple[Letter, StoreKeys]], *, who: str, source: str
    ) -> LettersTaken:
        done = await self._store.ingest(await asyncio.to_thread(self._kept, _portion(letters)))
        told = LettersTaken(new=done.new, copies=done.copies, again=done.again)
        await self._store.noted(who, "imported", {"file": source[:SOURCE_CHARS], **json_of(told)})
        return told

    def _kept(self, some: Sequence[tuple[Letter, StoreKeys]]) -> list[StoredLetter]:
        """As the store that knew them had them, in groups as here."""
        return [
            stored_letter(letter, now_ms=keys.died_ms, vhost=keys.vhost, grouping=self._grouping())._replace(
                letter_id=keys.letter_id, same=keys.same, message=keys.message
            )
            for letter, keys in some
        ]


@asynccontextmanager
async def opened_records(
    url: str, *, prepare: bool = True, grouping: GroupingSource = lambda: GROUPED_BY_DEFAULT
) -> AsyncIterator[StoreRecords]:
    """The records in the store at this URL."""
    programs = Programs()
    try:
        async with open_letters(url, prepare=prepare) as store:
            yield StoreRecords(store, programs, grouping=grouping)
    finally:
        await programs.close()


class LateRecords:
    """Opens the store when it is first asked for, and again later where that failed: for the service, which
    does not wait for its store."""

    def __init__(self, url: str, grouping: GroupingSource = lambda: GROUPED_BY_DEFAULT) -> None:
        self._url = url
        self._grouping = grouping
        self._opening = asyncio.Lock()
        self._opened: StoreRecords | None = None
        self._open = AsyncExitStack()

    async def __call__(self) -> StoreRecords:
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open.enter_async_context(
                    opened_records(self._url, grouping=self._grouping)
                )
            return self._opened

    async def close(self) -> None:
        await self._open.aclose()


def _bounded(limit: int) -> None:
    if not 0 < limit <= MAX_LIMIT:
        raise UsageError(
            f"limit: expected 1 to {MAX_LIMIT:,}, got {limit}; a page says where the next begins"
        )


def _portion(some: Sequence[_T]) -> Sequence[_T]:
    if len(some) > CHANGED_AT_ONCE:
        raise UsageError(f"expected at most {CHANGED_AT_ONCE:,} letters at once, got {len(some):,}")
    return some
