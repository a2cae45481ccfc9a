"""Stored letters, for whoever is at the desk: what they may, of what they see, in their name.

Every route and every page gets its records from here, so none can forget to ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from deadletter.core.access.field_masks import NO_MASKS, FieldMasks, field_masks
from deadletter.core.access.rights import Action
from deadletter.core.access.scope import Scope
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.desk.access.present import person
from deadletter.desk.answers.desk_route import JournalSource
from deadletter.errors import NotAllowed
from deadletter.operations.records.letter_told import LetterTold
from deadletter.operations.records.records import (
    GroupChange,
    GroupPage,
    LettersChanged,
    LettersFound,
    LettersTaken,
    Records,
    SplitDone,
    StoreTold,
)
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
)


class ScopedRecords(Records, Protocol):
    """Those that can be narrowed to what somebody sees."""

    def within(self, scope: Scope) -> Records: ...


ScopedRecordsSource: TypeAlias = Callable[[], Awaitable[ScopedRecords]]


def scope_of(who: Person, access: Access) -> Scope:
    """What they see, with what is masked for them now."""
    return replace(who.scope, masks=masks_for(who, access))


def masks_for(who: Person, access: Access) -> FieldMasks:
    return NO_MASKS if who.may(Action.SEE_MASKED) else field_masks(access.masked())


def rightful_records(
    records: ScopedRecordsSource, access: Access, journal: JournalSource | None = None
) -> Callable[[], Awaitable[Records]]:
    """Those of whoever asks. `journal`: where it is written down that letters were taken out."""

    async def of_person() -> Records:
        who = person()
        who.must(Action.SEE)
        return RightfulRecords((await records()).within(scope_of(who, access)), who, journal)

    return of_person


class RightfulRecords:
    """`Records`, each asked by a person who may."""

    def __init__(self, records: Records, who: Person, journal: JournalSource | None = None) -> None:
        self._journal: Final = journal
        self._records: Final = records
        self._person: Final = who

    def _may(self, action: Action, said: str) -> str:
        """NotAllowed; else their name, for the audit."""
        self._person.must(action)
        return self._person.called(said)

    def _sees_all(self, what: str) -> None:
        """NotAllowed."""
        if not self._person.scope.whole:
            raise NotAllowed(f"{what} is about all groups, and they see some of them")

    # -- looking -----------------------------------------------------------------------------------------
    async def store(self) -> StoreTold:
        return await self._records.store()

    async def groups(self, query: GroupQuery) -> GroupPage:
        return await self._records.groups(query)

    async def group(self, name: str) -> GroupDetail:
        return await self._records.group(name)

    async def grouping(self) -> GroupingTold:
        self._sees_all("how letters are grouped")
        return await self._records.grouping()

    async def letters(self, query: LetterQuery) -> LettersFound:
        return await self._records.letters(query)

    async def facets(self, query: LetterQuery) -> Facets:
        return await self._records.facets(query)

    async def letter(self, name: str) -> LetterTold:
        return await self._records.letter(name)

    async def body(self, name: str) -> bytes:
        return await self._records.body(name)

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        who = self._may(Action.EXPORT, "")
        found = await self._records.exact(ids)
        if self._journal is not None and found:
            told = {"letters": len(found), "first": min(found), "last": max(found)}
            await (await self._journal()).noted(who, "exported", told)
        return found

    async def preview(self) -> GroupingPreview:
        self._sees_all("a preview")
        return await self._records.preview()

    async def last_discard(self, who: str) -> DiscardTold:
        return await self._records.last_discard(self._person.called(who))

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView:
        return await self._records.change_group(name, change, who=self._may(Action.CHANGE_GROUP, who))

    async def note(self, name: str, text: str, *, who: str, version: str = "") -> GroupView:
        return await self._records.note(name, text, who=self._may(Action.NOTE, who), version=version)

    async def merge(self, into: str, other: str, *, who: str) -> GroupView:
        return await self._records.merge(into, other, who=self._may(Action.CHANGE_GROUP, who))

    async def split(self, key: str, *, who: str) -> SplitDone:
        return await self._records.split(key, who=self._may(Action.CHANGE_GROUP, who))

    async def regroup(self, *, who: str) -> GroupingTold:
        return await self._records.regroup(who=self._may(Action.REGROUP, who))

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        return await self._records.discard(ids, who=self._may(Action.DISCARD, who), why=why, run=run)

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        return await self._records.take_back(ids, who=self._may(Action.DISCARD, who), why=why)

    async def put(
        self, letters: Sequence[tuple[Letter, StoreKeys]], *, who: str, source: str
    ) -> LettersTaken:
        return await self._records.put(letters, who=self._may(Action.IMPORT, who), source=source)
