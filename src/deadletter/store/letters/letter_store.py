"""The letters of one store: what the service, the commands and the pages ask of it.

::

    async with open_letters(url) as store:
        await store.ingest(letters)
        page = await store.find(LetterQuery(origin="orders", text="timeout"))

Every method is one transaction, or none. Whatever the database raises becomes a StoreError.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.errors import StoreUnreachable
from deadletter.store.finding import searching
from deadletter.store.finding.facets import facets
from deadletter.store.finding.one_letter import detail_of
from deadletter.store.finding.searching import Where
from deadletter.store.finding.word_index import PendingWords
from deadletter.store.groups import group_changes, group_details, group_history, group_table
from deadletter.store.groups.group_preview import preview
from deadletter.store.groups.group_rows import GroupsGone
from deadletter.store.groups.group_services import services_of
from deadletter.store.groups.group_versions import unchanged_group
from deadletter.store.groups.regroup_run import Regrouping
from deadletter.store.letters import letter_changes
from deadletter.store.letters.discards import STEP, last_discard
from deadletter.store.letters.ingesting import Ingest, Ingested
from deadletter.store.letters.letter_connections import LetterConnections, open_connections, uncut
from deadletter.store.letters.letter_contents import contents_of, first_of, keys_of
from deadletter.store.letters.letter_tables import RowState
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupView,
    LetterDetail,
    LetterPage,
)

_TRIES: Final = 5
"""So often groups may go, one after the other, while letters of theirs come."""


class LetterStore:
    """`now_ms`: the time, which tests set."""

    def __init__(self, connections: LetterConnections, now_ms: Callable[[], int]) -> None:
        self.address: Final = connections.address
        self.connections: Final = connections
        self.now_ms: Final = now_ms
        self._reading = connections.reading
        self._writing = connections.writing
        self._now_ms = now_ms
        self._ingest = Ingest()
        self._ingesting = asyncio.Lock()
        self.dictionaries: Final = self._ingest.dictionaries
        """Whoever reads letters may pack them with these."""
        self.pending_words: Final = PendingWords(self._reading)
        self.regrouping: Final = Regrouping(connections, now_ms)

    # -- coming in ---------------------------------------------------------------------------------------
    @uncut
    async def ingest(
        self, batch: Sequence[StoredLetter], *, before_commit: Callable[[], Awaitable[None]] | None = None
    ) -> Ingested:
        """Committed when it returns: only then may anybody ack them. Where `before_commit` raises, nothing is
        stored."""
        prepared = await self._ingest.prepared(batch)
        known = self._ingest.generation
        tries = 0
        async with self._ingesting:
            while True:
                try:
                    async with self._writing() as connection:
                        self._ingest.connected(self.connections.made)
                        if self._ingest.generation != known:
                            prepared = await self._ingest.prepared(batch)
                            known = self._ingest.generation
                        done = await self._ingest.put(connection, prepared, now_ms=self._now_ms())
                        if before_commit is not None:
                            await before_commit()
                except GroupsGone as error:
                    self._ingest.rolled_back()
                    self._ingest.forget_groups()
                    tries += 1
                    if tries == _TRIES:
                        raise StoreUnreachable(
                            f"the store {self.address}: groups go while letters come; nothing was stored"
                        ) from error
                except BaseException:
                    self._ingest.rolled_back()
                    raise
                else:
                    self._ingest.committed()
                    self.pending_words.came(done.new + done.copies)
                    return done

    async def try_writing(self) -> None:
        """Raises unless letters could be written now."""
        async with self._writing() as connection:
            postgres = connection.dialect.name == "postgresql"
            asked = (
                "SELECT nextval('deadletter_letter_ids')"
                if postgres
                else "UPDATE deadletter_ids SET last = last"
            )
            await connection.execute(text(asked))

    # -- looking -----------------------------------------------------------------------------------------
    async def find(self, query: LetterQuery, *, where: Where | None = None) -> LetterPage:
        """A page of letters. `where` answers the query's jq program."""
        async with self._reading() as connection:
            return await searching.find(connection, query, where=where, clock=time.monotonic)

    async def facets(self, query: LetterQuery, *, where: Where | None = None) -> Facets:
        """How the found ones divide."""
        async with self._reading() as connection:
            return await facets(connection, query, where=where, clock=time.monotonic)

    async def letter(self, name: str, scope: Scope = WHOLE) -> LetterDetail:
        """One letter, by its number here, or by its id or the beginning of it. NotStored: there is none."""
        async with self._reading() as connection:
            return await detail_of(connection, name, scope)

    async def whole(self, ids: Sequence[int], *, most_bytes: int) -> dict[int, tuple[Letter, StoreKeys]]:
        """The first of these letters, exact, and what the store knows each by: for an archive."""
        async with self._reading() as connection:
            some = await first_of(connection, ids, most_bytes)
            found = await contents_of(connection, some)
            keys = await keys_of(connection, some)
            return {one: (found[one], keys[one]) for one in some if one in found and one in keys}

    async def noted(self, who: str, action: str, detail: dict[str, object]) -> None:
        """Write down that somebody did something that no single letter tells."""
        async with self._writing() as connection:
            await self._note(connection, who, action, detail)

    async def groups(self, query: GroupQuery) -> tuple[GroupView, ...]:
        async with self._reading() as connection:
            return await group_table.listed(connection, query, now_ms=self._now_ms())

    async def group(self, name: str, scope: Scope = WHOLE) -> GroupDetail:
        """One group, by its number or the beginning of its key. NotStored: there is none."""
        async with self._reading() as connection:
            found = await group_table.group_of(connection, name, now_ms=self._now_ms(), scope=scope)
            return await group_details.detail(connection, found, now_ms=self._now_ms(), scope=scope)

    async def group_view(self, name: str, scope: Scope = WHOLE) -> GroupView:
        """The same without what a list does not show."""
        async with self._reading() as connection:
            return await group_table.group_of(connection, name, now_ms=self._now_ms(), scope=scope)

    async def preview(self, grouping: Grouping) -> GroupingPreview:
        """What these rules would make of the letters that are here."""
        async with self._reading() as connection:
            return await preview(connection, grouping)

    async def minutes(
        self, some: Sequence[int], *, since_ms: int, scope: Scope = WHOLE
    ) -> dict[int, dict[int, int]]:
        """Letters by the minute, of several groups."""
        async with self._reading() as connection:
            return await group_details.minutes_of(connection, list(some), since_ms=since_ms, scope=scope)

    async def hours(
        self, some: Sequence[int], *, since_ms: int, scope: Scope = WHOLE
    ) -> dict[int, dict[int, int]]:
        """Letters by the hour since 1970, of several groups."""
        async with self._reading() as connection:
            return await group_details.hours_of(connection, list(some), since_ms=since_ms, scope=scope)

    async def releases(self, some: Sequence[int], *, scope: Scope = WHOLE) -> dict[int, str]:
        """The release that letters of each of these groups named last."""
        async with self._reading() as connection:
            return await group_details.releases_of(connection, list(some), scope=scope)

    async def last_notes(self, some: Sequence[int], *, scope: Scope = WHOLE) -> dict[int, str]:
        """What was noted last of each of these groups."""
        async with self._reading() as connection:
            return await group_details.last_notes_of(connection, list(some), scope=scope)

    async def services(self, some: Sequence[int]) -> dict[int, str]:
        """The service that letters of each of these groups failed in."""
        async with self._reading() as connection:
            return await services_of(connection, some)

    # -- what people do ----------------------------------------------------------------------------------
    # `scope`: of whoever does it; NotAllowed where not all of a group is theirs
    @uncut
    async def set_state(
        self,
        name: str,
        state: GroupState,
        *,
        who: str,
        until_ms: int | None = None,
        version: str = "",
        scope: Scope = WHOLE,
    ) -> GroupView:
        """Resolve, mute, snooze or open a group. `version`: only while it is this one."""
        async with self._writing() as connection:
            now_ms = self._now_ms()
            found = await group_table.own_group(connection, name, now_ms=now_ms, scope=scope)
            found = await unchanged_group(connection, found, version, now_ms=now_ms, scope=scope)
            await group_changes.set_state(connection, found, state, now_ms=now_ms, until_ms=until_ms)
            await self._note(connection, who, state.value, {"group": found.id, "until_ms": until_ms})
            return await group_table.group_of(connection, str(found.id), now_ms=now_ms, scope=scope)

    @uncut
    async def set_category(
        self, name: str, category: Category, *, who: str, version: str = "", scope: Scope = WHOLE
    ) -> GroupView:
        async with self._writing() as connection:
            now_ms = self._now_ms()
            found = await group_table.own_group(connection, name, now_ms=now_ms, scope=scope)
            found = await unchanged_group(connection, found, version, now_ms=now_ms, scope=scope)
            await group_changes.set_category(connection, found, category, who=who)
            await self._note(connection, who, "category", {"group": found.id, "category": category.value})
            return await group_table.group_of(connection, str(found.id), now_ms=now_ms, scope=scope)

    @uncut
    async def add_note(
        self,
        name: str,
        text: str,
        *,
        who: str,
        once: bool = False,
        version: str = "",
        scope: Scope = WHOLE,
    ) -> GroupView:
        """`once`: unless the group has this very note. `version`: only while the group is this one."""
        async with self._writing() as connection:
            now_ms = self._now_ms()
            found = await group_table.own_group(connection, name, now_ms=now_ms, scope=scope)
            found = await unchanged_group(connection, found, version, now_ms=now_ms, scope=scope)
            if once and await group_changes.has_note(connection, found, text):
                return found
            await group_changes.add_note(connection, found, text, author=who, now_ms=now_ms)
            await self._note(connection, who, "note", {"group": found.id})
            return found

    @uncut
    async def merge(self, into: str, other: str, *, who: str, scope: Scope = WHOLE) -> GroupView:
        """Letters of both are one group's, now and later, until they are split."""
        async with self._writing() as connection:
            now_ms = self._now_ms()
            first = await group_table.own_group(connection, into, now_ms=now_ms, scope=scope)
            second = await group_table.own_group(connection, other, now_ms=now_ms, scope=scope)
            await group_changes.merge(connection, first, second)
            await self._note(
                connection, who, "merge", {"group": first.id, "into": first.key, "other": second.key}
            )
        return first

    @uncut
    async def split(self, key: str, *, who: str, scope: Scope = WHOLE) -> None:
        """A merged group is one of its own again."""
        async with self._writing() as connection:
            await group_changes.split(connection, key, now_ms=self._now_ms(), scope=scope)
            await self._note(connection, who, "split", {"key": key})

    async def last_discard(self, who: str) -> DiscardTold | None:
        async with self._reading() as connection:
            return await last_discard(connection, who)

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> int:
        """Throw away; they can be taken back until their time is over. How many they were. `run`: several
        calls with the same one are one discard."""
        return await self._change(ids, RowState.OPEN, RowState.DISCARDED, STEP, who, why, run=run)

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> int:
        """Undo a discard. How many they were."""
        return await self._change(ids, RowState.DISCARDED, RowState.OPEN, "taken back", who, why)

    @uncut
    async def _change(
        self, ids: Sequence[int], before: RowState, after: RowState, step: str, who: str, why: str, **run: str
    ) -> int:
        async with self._writing() as connection:
            now_ms = self._now_ms()
            changed = await letter_changes.change_state(
                connection, ids, before=before, after=after, step=step, who=who, why=why, now_ms=now_ms
            )
            if changed:
                detail = json.dumps({"letters": changed, "why": why, **run})
                await letter_changes.noted(connection, who=who, action=step, detail=detail, now_ms=now_ms)
            return changed

    # -- forgetting --------------------------------------------------------------------------------------
    @uncut
    async def forget_some(self, queue: str, retention: Retention, *, vhost: str = "") -> int:
        """The next portion of letters whose time is over; 0: there are no more. `vhost` empty: those of which
        it is not known."""
        async with self._writing() as connection:
            return await letter_changes.forget_some(
                connection, vhost, queue, retention, now_ms=self._now_ms()
            )

    @uncut
    async def judge_some(self) -> int:
        """Groups whose category was not judged by their past for a while; 0: there are no more."""
        async with self._writing() as connection:
            return await group_history.judge_some(connection, now_ms=self._now_ms())

    @uncut
    async def fold_counts(self) -> int:
        """Old counts by the minute become counts by the hour; 0: there are no more."""
        async with self._writing() as connection:
            return await letter_changes.fold_counts(connection, now_ms=self._now_ms())

    async def _note(
        self, connection: AsyncConnection, who: str, action: str, detail: dict[str, object]
    ) -> None:
        await letter_changes.noted(
            connection, who=who, action=action, detail=json.dumps(detail), now_ms=self._now_ms()
        )


@asynccontextmanager
async def open_letters(
    url: str, *, prepare: bool = True, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
) -> AsyncIterator[LetterStore]:
    """The letters of the store at this URL."""
    async with open_connections(url, prepare=prepare) as connections:
        store = LetterStore(connections, now_ms)
        try:
            yield store
        finally:
            await store.pending_words.settled()
