"""Groups that were there before they had a vhost: which get one, and what grouping anew makes of the others.

About `store.groups.regrouping`, `store.groups.regroup_ending`, `store.groups.group_preview`,
`store.groups.group_details`, `core.grouping.regrouping`, `core.grouping.fingerprint`, `store.preparing`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, letters_at, parked
from tests.store.regrouped import check_counts, regroup

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping import fingerprint
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import GroupView, RegroupStage
from deadletter.store.preparing import MIGRATIONS, migrate

ALL: Final = GroupQuery(states=())
SHOP: Final = Scope(vhosts=("shop",))
BANK: Final = Scope(vhosts=("bank",))
PLAIN: Final = Grouping()
NAMED: Final = Grouping(rules=(GroupingRule(group="one of {origin}"),))


def as_before(
    number: int, vhost: str, *, error: str = "no answer", grouping: Grouping = PLAIN
) -> StoredLetter:
    """As the version that did not count vhosts grouped it."""
    one = parked(number, error=error, host=f"host-of-{vhost}", at_ms=NOON_MS - number * MINUTE_MS)
    made = stored_letter(one, now_ms=NOON_MS, vhost=vhost)
    return made._replace(fingerprint=stored_letter(one, now_ms=NOON_MS, grouping=grouping).fingerprint)


@dataclass(frozen=True)
class Older:
    """A store as the version before left it: its groups have no vhost."""

    ground: Ground
    store: LetterStore

    async def groups(self, scope: Scope = WHOLE) -> dict[tuple[str, str], GroupView]:
        found = await self.store.groups(GroupQuery(states=(), scope=scope))
        return {(one.vhost, one.title.partition(": ")[2]): one for one in found}


@asynccontextmanager
async def older(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *letters: StoredLetter, grouping: Grouping = PLAIN
) -> AsyncIterator[Older]:
    async with letters_at(ground) as store:
        with monkeypatch.context() as before:
            before.setattr(fingerprint, "VERSION", 1)
            await store.regrouping.put_in_force(grouping)
        for one in letters:
            await store.ingest([one])
        ground.sql("UPDATE deadletter_groups SET vhost = NULL")
        yield Older(ground, store)


# -- the step --------------------------------------------------------------------------------------------
@pytest.mark.unprepared
async def test_groups_that_are_there_get_the_vhost_of_all_their_letters(
    ground: Ground, tmp_path: Path
) -> None:
    older_steps = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, older_steps, ignore=shutil.ignore_patterns("__pycache__", "v0008*"))
    await migrate(ground.url, migrations=older_steps)
    ground.sql("INSERT INTO deadletter_names (id, name) VALUES (1, ''), (2, 'shop'), (3, 'bank'), (4, 'q')")
    tallied = {
        1: [(2, 5)],  # of one
        2: [(2, 5), (3, 1)],  # of two
        3: [(2, 5), (3, 0)],  # of two, as long as anybody knows
        4: [(1, 5)],  # nobody knows
        5: [(1, 1), (3, 1)],  # nobody knows of all of them
        6: [],  # nothing is left of it
        7: [(3, 0)],  # of one, and they are gone
    }
    for group, places in tallied.items():
        ground.sql(
            "INSERT INTO deadletter_groups (id, key, origin, title, culprit, error_type, parts, category, "
            "category_by, category_why, guess, guess_why, state, first_ms, last_ms, total) VALUES "
            f"({group}, 'k{group}', 4, 't', '', '', '[]', 'bug', 'guess', '', 'bug', '', 'open', 1, 1, 5)"
        )
        for vhost, letters in places:
            for state in (0, 1):
                ground.sql(
                    "INSERT INTO deadletter_tallies (group_id, vhost, queue, state, letters, bytes) "
                    f"VALUES ({group}, {vhost}, 4, {state}, {letters}, 0)"
                )
    ground.sql("INSERT INTO deadletter_notes VALUES (1, 1, 1, 'ann', 'kept')")
    await migrate(ground.url)
    told = ground.sql("SELECT id, coalesce(vhost, 0) FROM deadletter_groups ORDER BY id")
    assert told == "1|2\n2|0\n3|0\n4|0\n5|0\n6|0\n7|3"
    async with letters_at(ground) as store:
        assert {one.id for one in await store.groups(GroupQuery(states=(), scope=SHOP))} == {1}
        assert {one.id for one in await store.groups(GroupQuery(states=(), scope=BANK))} == {7}
        assert len(await store.groups(ALL)) == 7
        assert [note.text for note in (await store.group("1", SHOP)).notes] == ["kept"]


# -- grouped anew ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("grouping", [PLAIN, NAMED], ids=["plain", "rule"])
async def test_a_group_of_two_vhosts_is_parted_and_what_was_said_holds(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, grouping: Grouping
) -> None:
    some = [as_before(n, "bank", grouping=grouping) for n in range(3)]
    some += [as_before(n, "shop", grouping=grouping) for n in range(3, 5)]
    async with older(ground, monkeypatch, *some, grouping=grouping) as house:
        store = house.store
        (mixed,) = (await house.groups()).values()
        assert (mixed.vhost, mixed.total) == ("", 5)
        await store.set_state(str(mixed.id), GroupState.MUTED, who="ann")
        await store.set_category(str(mixed.id), Category.OVERLOAD, who="ann")
        await store.add_note(str(mixed.id), "said of both", who="ann")
        assert (await store.regrouping.told(grouping)).stage is RegroupStage.BEHIND, "an upgrade is told"
        preview = await store.preview(grouping)
        assert (preview.before, preview.after, [one.into for one in preview.parted]) == (1, 2, [2])
        await regroup(store, grouping)
        await check_counts(ground)
        found = await house.groups()
        assert {vhost: one.total for (vhost, _), one in found.items()} == {"bank": 3, "shop": 2}
        for one in found.values():
            assert (one.state, one.category, one.category_by) == (
                GroupState.MUTED,
                Category.OVERLOAD,
                By.PERSON,
            )
        (largest,) = (await house.groups(BANK)).values()
        (other,) = (await house.groups(SHOP)).values()
        assert (largest.total, other.total) == (3, 2)
        whole = await store.group(str(largest.id))
        assert [note.text for note in whole.notes] == ["said of both"], "it went with most of the letters"
        assert await store.last_notes([largest.id]) == {largest.id: "said of both"}
        theirs = await store.group(str(largest.id), BANK)
        assert theirs.notes == (), "it may be about letters of the other"
        assert await store.last_notes([largest.id], scope=BANK) == {}
        assert {tag.value for tag in theirs.tags if tag.kind == "host"} == {"host-of-bank"}
        await store.add_note(str(largest.id), "since", who="bea", scope=BANK)
        assert [note.text for note in (await store.group(str(largest.id), BANK)).notes] == ["since"]
        # what comes now is with them, and grouping anew once more changes nothing
        came = [parked(50, error="no answer"), parked(51, error="no answer")]
        new = [
            stored_letter(one, now_ms=NOON_MS, vhost=vhost, grouping=grouping)
            for one, vhost in zip(came, ("bank", "shop"), strict=True)
        ]
        assert (await store.ingest(new)).new_groups == 0
        await regroup(store, grouping)
        assert (await store.regrouping.told(grouping)).stage is RegroupStage.DONE


async def test_notes_stay_apart_through_further_rules(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with older(ground, monkeypatch, as_before(1, "bank"), as_before(2, "shop")) as house:
        (mixed,) = (await house.groups()).values()
        await house.store.add_note(str(mixed.id), "said of both", who="ann")
        for grouping in (PLAIN, NAMED, PLAIN):
            await regroup(house.store, grouping)
            details = [await house.store.group(str(one.id)) for one in (await house.groups()).values()]
            assert [note.text for one in details for note in one.notes] == ["said of both"]
            for scope in (BANK, SHOP):
                (one,) = (await house.groups(scope)).values()
                assert (await house.store.group(str(one.id), scope)).notes == ()


async def test_of_letters_that_are_forgotten_nobody_knows_the_vhost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group of one vhost all stays known."""
    some = [as_before(n, ("bank", "shop")[n % 2]) for n in range(8)]
    some += [as_before(n, "shop", error="alone") for n in range(10, 14)]
    async with older(ground, monkeypatch, *some) as house:
        for vhost in ("bank", "shop"):
            keep = Retention(letters=1 if vhost == "bank" else 2)
            while await house.store.forget_some("deadletter.parked", keep, vhost=vhost):
                pass
        before = {one.title.partition(": ")[2]: one for one in await house.store.groups(ALL)}
        assert (before["no answer"].total, before["alone"].total) == (8, 4)
        left = {row.vhost for row in (await house.store.find(LetterQuery(error="no answer"))).letters}
        await regroup(house.store, PLAIN)
        found = await house.groups()
        for vhost in left:
            one = found[vhost, "no answer"]
            detail = await house.store.group(str(one.id), Scope(vhosts=(vhost,)))
            assert (one.total, sum(n for _, n in detail.minutes)) == (1, 1)
            assert {tag.value for tag in detail.tags if tag.kind == "host"} == {f"host-of-{vhost}"}
        alone = found["shop", "alone"]
        assert alone.total == 4
        assert alone.first_ms // MINUTE_MS == before["alone"].first_ms // MINUTE_MS


async def test_what_was_merged_stays_together_in_all_vhosts_and_split_stays_apart(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = ("first", "second", "third", "fourth")
    some = [
        as_before(10 * n + place, vhost, error=error)
        for n, error in enumerate(errors)
        for place, vhost in enumerate(("bank", "shop"))
    ]
    async with older(ground, monkeypatch, *some) as house:
        by = {one.title.partition(": ")[2]: one for one in await house.store.groups(ALL)}
        await house.store.merge(by["first"].key, by["second"].key, who="ann")
        await house.store.merge(by["third"].key, by["fourth"].key, who="ann")
        await house.store.split(by["fourth"].key, who="ann")
        await regroup(house.store, PLAIN)
        await check_counts(ground)
        together: dict[int, set[tuple[str, str]]] = {}
        for row in (await house.store.find(LetterQuery(limit=100))).letters:
            together.setdefault(row.group, set()).add((row.vhost, row.error.partition(": ")[2]))
        assert sorted(map(sorted, together.values())) == [
            [("bank", "first"), ("bank", "second"), ("shop", "first"), ("shop", "second")],
            [("bank", "fourth")],
            [("bank", "third")],
            [("shop", "fourth")],
            [("shop", "third")],
        ]
        mine = await house.groups(SHOP)
        assert {title for _, title in mine} in ({"first", "third", "fourth"}, {"second", "third", "fourth"})
        assert {vhost for vhost, _ in mine} == {"shop"}
        assert sum(one.total for one in mine.values()) == 4
