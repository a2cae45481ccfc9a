"""Stored letters, asked of the store itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Final, TypeVar

from deadletter.core.access.field_masks import MASKED
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.core.grouping.stored_letter import StoredLetter, read_inside, stored_letter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.masked_letter import masked
from deadletter.errors import NotAllowed, NotStored, UsageError
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.operations.records.letter_told import LetterTold, tell
from deadletter.operations.records.masked_groups import GroupingSource, MaskedGroups
from deadletter.operations.records.masked_rows import masked_rows
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
from deadletter.operations.records.single_letter import alone
from deadletter.operations.records.where_programs import Programs, WhereProgram
from deadletter.store.letters.large_letters import aside
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
    LetterDetail,
    LetterRow,
)
from deadletter.store.store_address import address_text

_HOUR_MS: Final = 3_600_000
_T = TypeVar("_T")


class StoreRecords:
    """The operations on an open store. `scope`: what whoever asks may see, and what they do is done to."""

    def __init__(
        self,
        store: LetterStore,
        programs: Programs,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        *,
        grouping: GroupingSource = lambda: GROUPED_BY_DEFAULT,
        scope: Scope = WHOLE,
        groups: MaskedGroups | None = None,
    ) -> None:
        self.masked_groups: Final = groups or MaskedGroups()
        self.opened: Final = store
        self.scope: Final = scope
        self.programs: Final = programs
        self._store = store
        self._grouping = grouping
        self._programs = programs
        self._now_ms = now_ms

    def within(self, scope: Scope) -> StoreRecords:
        """The same, for somebody who does not see all of it."""
        return StoreRecords(
            self._store,
            self._programs,
            self._now_ms,
            grouping=self._grouping,
            scope=scope,
            groups=self.masked_groups,
        )

    async def store(self) -> StoreTold:
        return StoreTold(address=address_text(self._store.address))

    # -- looking -----------------------------------------------------------------------------------------
    async def groups(self, query: GroupQuery) -> GroupPage:
        bounded(query.limit)
        found = await self._store.groups(replace(query, limit=query.limit + 1, scope=self.scope))
        more = query.offset + query.limit if len(found) > query.limit else None
        found = await self._shown(found[: query.limit])
        some = [one.id for one in found]
        last = self._now_ms() // _HOUR_MS
        first = last - HOURS + 1
        since_ms = first * _HOUR_MS
        hours = await self._store.hours(some, since_ms=since_ms, scope=self.scope) if some else {}
        releases = await self._store.releases(some, scope=self.scope) if some else {}
        notes = await self._store.last_notes(some, scope=self.scope) if some else {}
        return GroupPage(
            groups=tuple(
                GroupLine(
                    **{one.name: getattr(group, one.name) for one in fields(GroupView)},
                    hours=tuple(hours.get(group.id, {}).get(hour, 0) for hour in range(first, last + 1)),
                    release=releases.get(group.id, ""),
                    note=notes.get(group.id, ""),
                )
                for group in found
            ),
            more=more,
        )

    async def group(self, name: str) -> GroupDetail:
        found = await self._store.group(name, self.scope)
        found = replace(found, samples=await self._rows(found.samples))
        return await self.masked_groups.detail(self._store, found, self.scope, self._grouping)

    async def grouping(self) -> GroupingTold:
        return await self._store.regrouping.told(self._grouping())

    async def preview(self) -> GroupingPreview:
        told = await self._store.preview(self._grouping())
        if not self.scope.masks:
            return told
        titled = [(one.group, one.title) for one in told.parted]
        shown = await self.masked_groups.titles(self._store, titled, self.scope, self._grouping)
        parted = tuple(replace(one, title=title) for one, title in zip(told.parted, shown, strict=True))
        # groups that are not there yet have no letter to ask
        return replace(told, joined=tuple(replace(one, title=MASKED) for one in told.joined), parted=parted)

    async def letters(self, query: LetterQuery) -> LettersFound:
        bounded(query.limit)
        query = replace(query, scope=self.scope)
        where = await self._where(query)
        page = await self._store.find(query, where=where)
        return LettersFound(
            letters=await self._rows(page.letters),
            more=page.more,
            # it would tell what the index of words found
            looked_at=0 if self.scope.masks else page.looked_at,
            unanswered=0 if where is None else where.unanswered,
        )

    async def facets(self, query: LetterQuery) -> Facets:
        query = replace(query, scope=self.scope)
        where = await self._where(query)
        told = await self._store.facets(query, where=where)
        told = replace(told, looked_at=0) if self.scope.masks else told
        told = await self.masked_groups.facets(self._store, told, self.scope, self._grouping)
        return told if where is None else replace(told, unanswered=where.unanswered)

    async def letter(self, name: str) -> LetterTold:
        detail = await self._store.letter(name, self.scope)
        detail = replace(detail, earlier=await self._rows(detail.earlier))
        (group,) = await self._shown([await self._group_of(detail)])
        if not self.scope.masks:
            return tell(detail, group)
        return await asyncio.to_thread(tell, detail, group, masks=self.scope.masks)

    async def body(self, name: str) -> bytes:
        detail = await self._store.letter(name, self.scope)
        made = partial(masked, read_inside(detail.letter), self.scope.masks)
        return (await aside(detail.letter, made)).inside.body

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        if self.scope.masks:
            raise NotAllowed("an export is exact, and some fields are masked for whoever asks")
        return await self._store.whole(await self._mine(ids), most_bytes=PORTION_BYTES)

    async def _where(self, query: LetterQuery) -> WhereProgram | None:
        return None if query.where is None else await self._programs.question(query.where, query.scope.masks)

    async def _rows(self, rows: Sequence[LetterRow]) -> tuple[LetterRow, ...]:
        return await masked_rows(self._store, rows, self.scope.masks)

    async def _mine(self, ids: Sequence[int]) -> Sequence[int]:
        """Of these letters those that may be seen."""
        some = _portion(ids)
        if self.scope.whole or not some:
            return some
        asked = LetterQuery(ids=tuple(some), state=None, limit=MAX_LIMIT, scope=self.scope)
        mine = {row.id for row in (await self._store.find(asked)).letters}
        return [one for one in some if one in mine]

    async def _group_of(self, detail: LetterDetail) -> GroupView:
        """The group of a letter; where that is none of theirs, as this letter alone would be one."""
        try:
            return await self._store.group_view(str(detail.row.group), self.scope)
        except NotStored:
            return alone(detail, self._grouping())

    async def _shown(self, groups: Sequence[GroupView]) -> tuple[GroupView, ...]:
        return await self.masked_groups.views(self._store, groups, self.scope, self._grouping)

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView:
        if change.state is None and change.category is None:
            raise UsageError("expected a state or a category to change, got neither")
        found = None
        version = change.version
        if change.category is not None:
            found = await self._store.set_category(
                name, change.category, who=who, version=version, scope=self.scope
            )
            version = ""
        if change.state is not None:
            found = await self._store.set_state(
                name, change.state, who=who, until_ms=change.until_ms, version=version, scope=self.scope
            )
        assert found is not None
        return (await self._shown([found]))[0]

    async def note(self, name: str, text: str, *, who: str, version: str = "") -> GroupView:
        noted = await self._store.add_note(name, text, who=who, version=version, scope=self.scope)
        return (await self._shown([noted]))[0]

    async def merge(self, into: str, other: str, *, who: str) -> GroupView:
        whole = await self._store.merge(into, other, who=who, scope=self.scope)
        return (await self._shown([await self._store.group_view(str(whole.id), self.scope)]))[0]

    async def split(self, key: str, *, who: str) -> SplitDone:
        await self._store.split(key, who=who, scope=self.scope)
        return SplitDone(key=key)

    async def regroup(self, *, who: str) -> GroupingTold:
        return await self._store.regrouping.go_on(self._grouping(), who=who)

    async def last_discard(self, who: str) -> DiscardTold:
        found = await self._store.last_discard(who)
        if found is None:
            raise NotStored(f"{who} has discarded nothing here")
        return found

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        return LettersChanged(
            letters=await self._store.discard(await self._mine(ids), who=who, why=why, run=run)
        )

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        return LettersChanged(letters=await self._store.take_back(await self._mine(ids), who=who, why=why))

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


def bounded(limit: int) -> None:
    """UsageError for a page that is too large."""
    if not 0 < limit <= MAX_LIMIT:
        raise UsageError(
            f"limit: expected 1 to {MAX_LIMIT:,}, got {limit}; a page says where the next begins"
        )


def _portion(some: Sequence[_T]) -> Sequence[_T]:
    if len(some) > CHANGED_AT_ONCE:
        raise UsageError(f"expected at most {CHANGED_AT_ONCE:,} letters at once, got {len(some):,}")
    return some
