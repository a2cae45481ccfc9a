"""What the commands and the API ask of a store, on both databases.

About `operations.records.store_records`, `store.letters.letter_store`, `store.groups.group_table`,
`store.letters.letter_changes`.
"""

from __future__ import annotations

import time

import pytest
from tests.recorded import collection, parked
from tests.store.grounds import Ground

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.errors import NotStored
from deadletter.operations.records.records import GroupChange
from deadletter.operations.records.store_records import opened_records
from deadletter.store.letters.letter_store import open_letters


async def test_looking_and_changing(ground: Ground) -> None:
    now_ms = int(time.time() * 1000)
    async with open_letters(ground.url) as store:
        await store.ingest(collection(now_ms))
    async with opened_records(ground.url) as records:
        page = await records.groups(GroupQuery(states=(), order=GroupOrder.LETTERS, limit=1))
        assert (len(page.groups), page.more) == (1, 1)
        (group,) = page.groups
        assert (group.total, sum(group.hours), group.release) == (5, 5, "1.4.2")
        by_number = await records.letter("1")
        assert await records.letter(f"{1:032x}") == by_number
        assert (await records.letter("6")).group.origin == "mail"
        for name in ("nothing", "0000", "999", "", "ffff"):
            with pytest.raises(NotStored):
                await records.letter(name)
        found = await records.letters(LetterQuery(where=".body.order? > 3", text="order"))
        assert [row.id for row in found.letters] == [5, 4]
        view = await records.change_group(
            str(group.id), GroupChange(state=GroupState.MUTED, category=Category.BUG), who="anna"
        )
        assert (view.state, view.category) == (GroupState.MUTED, Category.BUG)
        assert (await records.discard([1, 2, 77], who="anna", why="")).letters == 2
        assert (await records.facets(LetterQuery(state=LetterState.DISCARDED))).total == 2
        assert (await records.take_back([1, 2, 3], who="anna", why="")).letters == 2
        assert (await records.facets(LetterQuery())).total == 9


async def test_a_copy_goes_where_its_letter_goes_and_not_alone(ground: Ground) -> None:
    now_ms = int(time.time() * 1000)
    first = parked(b"{}", now_ms=now_ms, number=1)
    async with open_letters(ground.url) as store:
        await store.ingest([first])
        await store.ingest([first._replace(message=b"another publish!")])
    async with opened_records(ground.url) as records:
        (row,) = (await records.letters(LetterQuery())).letters
        assert row.copies == 1
        assert (await records.letter(str(row.id))).earlier == (), "a copy is no earlier visit"
        assert (await records.discard([row.id + 1], who="anna", why="")).letters == 0
        assert (await records.discard([row.id, row.id + 1], who="anna", why="")).letters == 1
        assert (await records.facets(LetterQuery())).total == 0
        assert (await records.take_back([row.id], who="anna", why="")).letters == 1
        assert (await records.letters(LetterQuery())).letters == (row,)
