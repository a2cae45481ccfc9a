"""Groups of letters: counted, closed and opened again, asleep, noted on, merged and taken apart.

About `store.groups.group_table`, `store.groups.group_counts`, `store.groups.group_history`,
`store.letters.letter_views`.
"""

from __future__ import annotations

import pytest
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored

from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.errors import UsageError
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import GroupView

ALL = GroupQuery(states=())


async def _by_title(store: LetterStore) -> dict[str, GroupView]:
    return {group.title.partition(": ")[2]: group for group in await store.groups(ALL)}


async def test_counts_first_last_releases_hosts_and_minutes(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1, at_ms=NOON_MS - 5 * MINUTE_MS, release="1.0", host="a")))
        await store.ingest(
            stored(
                parked(2, at_ms=NOON_MS - 9 * MINUTE_MS, release="1.1", host="a"),
                parked(3, at_ms=NOON_MS - 9 * MINUTE_MS, release="1.1", host="b"),
                parked(4, error="disk full", origin="mail"),
            )
        )
        groups = await _by_title(store)
        group = groups["the ledger did not answer"]
        assert (group.total, group.open, group.origin) == (3, 3, "orders")
        assert (group.first_ms, group.last_ms) == (NOON_MS - 9 * MINUTE_MS, NOON_MS - 5 * MINUTE_MS)
        told = await store.group(str(group.id))
        noon = NOON_MS // MINUTE_MS
        assert told.minutes == ((noon - 9, 2), (noon - 5, 1))
        assert {(tag.kind, tag.value): tag.letters for tag in told.tags} == {
            ("release", "1.0"): 1,
            ("release", "1.1"): 2,
            ("host", "a"): 2,
            ("host", "b"): 1,
        }
        assert len(told.samples) == 3
        assert (await store.group(group.key[:10])).group == group
        for name in ("", "zz", "99", "%", "9" * 40):
            with pytest.raises(UsageError, match="none is called so"):
                await store.group(name)


async def test_lists_are_ordered_and_divided_into_pages(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(
            stored(
                *(parked(n, error="often", at_ms=NOON_MS) for n in range(3)),
                parked(5, error="early", at_ms=NOON_MS - MINUTE_MS),
                parked(6, error="late", at_ms=NOON_MS + MINUTE_MS, origin="mail"),
            )
        )

        async def titles(**query: object) -> list[str]:
            return [g.title.partition(": ")[2] for g in await store.groups(GroupQuery(**query))]  # type: ignore[arg-type]

        assert await titles() == ["late", "often", "early"]
        assert (await titles(order=GroupOrder.LETTERS))[0] == "often"
        assert await titles(order=GroupOrder.FIRST, limit=1, offset=1) == ["often"]
        assert await titles(origin="mail") == ["late"]
        assert await titles(text="OFT timeout") == ["often"]
        assert await titles(text="100%") == []
        assert await titles(category=Category.DATA) == []


async def test_a_resolved_group_opens_with_what_fails_after_it(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(parked(1)))
        (group,) = await store.groups(ALL)
        clock.now_ms += MINUTE_MS
        resolved = await store.set_state(str(group.id), GroupState.RESOLVED, who="ann")
        assert resolved.state is GroupState.RESOLVED
        done = await store.ingest(stored(parked(2, at_ms=NOON_MS)))  # failed before, came later
        assert done.reopened == 0
        assert (await store.groups(ALL))[0].state is GroupState.RESOLVED
        later = NOON_MS + 2 * MINUTE_MS
        batch = [parked(3, at_ms=later + 9, release="1.3"), parked(4, at_ms=later, release="1.2")]
        clock.now_ms = later + 100
        assert (await store.ingest(stored(*batch))).reopened == 1
        (group,) = await store.groups(GroupQuery())
        assert (group.reopened_ms, group.reopened_release) == (later + 100, "1.2")


async def test_a_snoozed_group_wakes_by_itself_and_a_muted_one_does_not(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(parked(1), parked(2, error="other")))
        one, other = await store.groups(ALL)
        with pytest.raises(UsageError, match="in the future"):
            await store.set_state(str(one.id), GroupState.SNOOZED, who="ann", until_ms=NOON_MS)
        await store.set_state(str(one.id), GroupState.SNOOZED, who="ann", until_ms=NOON_MS + MINUTE_MS)
        await store.set_state(str(other.id), GroupState.MUTED, who="ann")
        assert await store.groups(GroupQuery()) == ()
        (asleep,) = await store.groups(GroupQuery(states=(GroupState.SNOOZED,)))
        assert asleep.id == one.id
        await store.ingest(stored(parked(3), parked(4, error="other")))
        assert await store.groups(GroupQuery()) == ()
        clock.now_ms += MINUTE_MS
        (awake,) = await store.groups(GroupQuery())
        assert (awake.id, awake.state) == (one.id, GroupState.OPEN)
        assert await store.groups(GroupQuery(states=(GroupState.SNOOZED,))) == ()


async def test_notes(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1)))
        for text in ("  ", "x" * 4_001):
            with pytest.raises(UsageError, match="a note"):
                await store.add_note("1", text, who="ann")
        await store.add_note("1", "look at\0 the ledger 🦆", who="ann")
        (note,) = (await store.group("1")).notes
        assert (note.author, note.text, note.at_ms) == ("ann", "look at\ufffd the ledger 🦆", NOON_MS)
        assert (await store.set_category("1", Category.OVERLOAD, who="ann")).category is Category.OVERLOAD


async def test_merged_groups_are_one_and_split_give_everything_back(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store, letters_at(ground, clock) as other_instance:
        first = [parked(n, error="first", at_ms=NOON_MS + n) for n in (1, 2)]
        second = [parked(n, error="second", at_ms=NOON_MS + n, release="2.0", host="b") for n in (3, 4, 5)]
        await store.ingest(stored(*first, *second))
        await other_instance.ingest(stored(parked(20, error="third")))
        groups = await _by_title(store)
        one, two, three = groups["first"], groups["second"], groups["third"]
        await store.add_note(str(two.id), "of the second", who="bob")
        with pytest.raises(UsageError, match="the same twice"):
            await store.merge(str(one.id), str(one.id), who="ann")
        await store.merge(str(two.id), str(three.id), who="ann")
        await store.merge(str(one.id), str(two.id), who="ann")
        (group,) = await store.groups(ALL)
        assert (group.id, group.total, group.open) == (one.id, 6, 6)
        assert (group.first_ms, group.last_ms) == (NOON_MS, NOON_MS + 5)
        assert (await store.group(two.key)).group == group  # the old name leads to it
        # letters that come later, through an instance that knew the groups before
        await other_instance.ingest(
            stored(parked(6, error="second", release="2.0"), parked(7, error="first"))
        )
        await store.ingest(stored(parked(8, error="second"), parked(21, error="third")))
        (group,) = await store.groups(ALL)
        assert (group.total, group.open) == (10, 10)
        page = await store.find(LetterQuery(group=one.id))
        assert len(page.letters) == 10
        assert {row.group for row in page.letters} == {one.id}
        facets = await store.facets(LetterQuery(group=one.id))
        assert (facets.total, [(f.value, f.letters) for f in facets.by["group"]]) == (10, [(str(one.id), 10)])
        told = await store.group(str(one.id))
        assert {*told.merged} == {two.key, three.key}
        assert [note.text for note in told.notes] == ["of the second"]
        assert sum(letters for _, letters in told.minutes) == 10
        assert sum(tag.letters for tag in told.tags if tag.kind == "release") == 10
        assert (await store.minutes([one.id], since_ms=0))[one.id] == dict(told.minutes)
        # a merged one that fails opens the one it is in
        clock.now_ms += MINUTE_MS
        await store.set_state(str(one.id), GroupState.RESOLVED, who="ann")
        late = parked(9, error="second", at_ms=clock.now_ms + 1, release="3.0")
        assert (await other_instance.ingest(stored(late))).reopened == 1
        assert (await store.groups(GroupQuery()))[0].reopened_release == "3.0"
        # discarded letters of a merged one are the group's
        await store.discard([row.id for row in page.letters], who="ann", why="done")
        assert (await store.groups(ALL))[0].open == 1
        await store.take_back([row.id for row in page.letters], who="ann", why="not done")
        for key in ("", one.key, "zz"):
            with pytest.raises(UsageError, match="was merged into another"):
                await store.split(key, who="ann")
        await store.split(two.key, who="ann")
        groups = await _by_title(store)
        assert {title: (g.total, g.open) for title, g in groups.items()} == {
            "first": (5, 5),
            "second": (6, 6),
        }
        await store.split(three.key[:12], who="ann")
        groups = await _by_title(store)
        assert {title: g.open for title, g in groups.items()} == {"first": 3, "second": 6, "third": 2}
        await other_instance.ingest(stored(parked(10, error="second")))
        assert (await _by_title(store))["second"].open == 7
        assert {row.group for row in (await store.find(LetterQuery(group=two.id))).letters} == {two.id}


async def test_the_past_of_a_group_tells_its_category(ground: Ground) -> None:
    clock = Clock()
    day_ms = 24 * 60 * MINUTE_MS
    async with letters_at(ground, clock) as store:
        burst = [parked(n, error="burst", kind="KeyError", at_ms=NOON_MS + n) for n in range(3)]
        steady = [parked(10 + n, error="steady", at_ms=NOON_MS + n * 300 * MINUTE_MS) for n in range(8)]
        said = [parked(20 + n, error="said", at_ms=NOON_MS + n) for n in range(3)]
        await store.ingest(stored(*burst, *said))
        await store.set_category((await _by_title(store))["said"].key, Category.DATA, who="ann")
        assert await store.judge_some() == 1
        assert {group.category_by for group in (await _by_title(store)).values()} == {By.GUESS, By.PERSON}
        assert await store.judge_some() == 0, "not again before an hour is over"
        clock.now_ms = NOON_MS + 2 * day_ms
        await store.ingest(stored(*steady))
        assert await store.judge_some() == 2
        groups = await _by_title(store)
        assert (groups["burst"].category, groups["burst"].category_by) == (Category.TRANSIENT, By.HISTORY)
        assert "and none in the 2 d since" in groups["burst"].category_why
        assert (groups["steady"].category, groups["steady"].category_by) == (Category.PERMANENT, By.HISTORY)
        assert "none of 24 tries went through" in groups["steady"].category_why
        assert groups["said"].category is Category.DATA
        (found,) = await store.groups(GroupQuery(states=(), category=Category.TRANSIENT))
        assert found.id == groups["burst"].id
        # it goes on: then the first guess holds again
        await store.ingest(stored(parked(30, error="burst", kind="KeyError", at_ms=clock.now_ms)))
        clock.now_ms += day_ms // 24
        await store.judge_some()
        group = (await _by_title(store))["burst"]
        assert (group.category, group.category_by) == (Category.BUG, By.GUESS)
