"""Changed rules applied to stored letters: everything is counted where it is now, and what people said holds.

About `store.groups.regrouping`, `store.groups.regroup_ending`, `store.groups.regroup_run`,
`store.groups.group_rows`, `store.letters.letter_connections`.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored
from tests.store.regrouped import check_counts, regroup

from deadletter.core.grouping import fingerprint
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter.letter import Letter
from deadletter.store.groups import regroup_ending, regrouping
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import GroupView, RegroupStage

ALL = GroupQuery(states=())
PLAIN = Grouping()
RENAMED = Grouping(rules=(GroupingRule(group="renamed {default}"),))
"""Every key is another one, and what was together is together."""
ONE = Grouping(rules=(GroupingRule(group="one"),))
BY_TENANT = Grouping(rules=(GroupingRule(group="{default} {header:tenant}"),))


def by(grouping: Grouping, *letters: Letter) -> list[StoredLetter]:
    return [stored_letter(letter, now_ms=NOON_MS, grouping=grouping) for letter in letters]


async def _by_title(store: LetterStore) -> dict[str, GroupView]:
    return {group.title.partition(": ")[2]: group for group in await store.groups(ALL)}


def _some(seed: int, letters: int = 60, move: str = "") -> list[Letter]:
    chance = random.Random(seed)
    return [
        parked(
            number,
            move=move,
            error=chance.choice(["disk full", "no answer", "bad input"]),
            origin=chance.choice(["orders", "mail"]),
            queue=chance.choice(["deadletter.parked", "errors"]),
            at_ms=NOON_MS - chance.randrange(5 * 24 * 60) * MINUTE_MS,
            release=chance.choice(["1.0", "1.1", ""]),
            host=chance.choice(["a", "b"]),
            headers={"tenant": chance.choice(["x", "y"])},
        )
        for number in range(letters)
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_everything_is_counted_where_its_letters_are(
    ground: Ground, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that join, that part, that rename, one after the other; some counts are by the hour already, some
    letters are discarded, some have copies, and some come meanwhile."""
    monkeypatch.setattr("deadletter.store.groups.regrouping.AT_ONCE", 7)
    chance = random.Random(seed)
    rules = [PLAIN, RENAMED, ONE, BY_TENANT, Grouping(rules=(GroupingRule(group="t", message="*a*"),))]
    letters = _some(seed)
    async with letters_at(ground) as store, letters_at(ground) as other:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*letters[:40], _some(seed, move="another")[3]))
        await other.ingest(stored(*letters[40:45]))
        while await store.fold_counts():
            pass
        await store.discard([1, 5, 9], who="ann", why="")
        now, coming = PLAIN, 45
        for _ in range(3):
            before = now
            now = chance.choice([one for one in rules if one is not before])
            told = await store.regrouping.put_in_force(now)
            assert (told.stage, told.since_ms) == (RegroupStage.BEHIND, NOON_MS)
            await store.regrouping.go_on(now, who="ann", for_s=0.0)
            await store.regrouping.go_on(now, who="ann", for_s=0.0)
            await other.ingest(by(now, *letters[coming : coming + 4]))  # it knows the groups of before
            coming += 4
            await regroup(store, now)
            await check_counts(ground)
            keys = {one.fingerprint.key for one in by(now, *letters[:coming])}
            assert {group.key for group in await store.groups(ALL)} == keys


async def test_a_service_says_that_letters_are_behind(ground: Ground) -> None:
    async with letters_at(ground) as store:
        assert (await store.regrouping.put_in_force(PLAIN)).stage is RegroupStage.DONE, "there are no letters"
        await store.ingest(stored(parked(1)))
        assert (await store.regrouping.put_in_force(PLAIN)).stage is RegroupStage.DONE
        assert (await store.regrouping.told(ONE)).stage is RegroupStage.BEHIND
        assert (await store.regrouping.put_in_force(ONE)).stage is RegroupStage.BEHIND
        told = await regroup(store, ONE)
        assert (told.looked_at, told.moved, told.groups_before, told.groups) == (1, 1, 1, 1)
        assert "regroup done" in ground.sql("SELECT action FROM deadletter_audit WHERE who = 'ann'")


async def test_another_way_of_making_fingerprints_is_another_grouping(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(parked(1, error="first"), parked(2, error="second"), parked(3)))
        groups = await _by_title(store)
        await store.merge(groups["first"].key, groups["second"].key, who="ann")
        await store.add_note(groups["first"].key, "look", who="ann")
        monkeypatch.setattr(fingerprint, "VERSION", fingerprint.VERSION + 1)
        assert (await store.regrouping.put_in_force(PLAIN)).stage is RegroupStage.BEHIND
        await regroup(store, PLAIN)
        await check_counts(ground)
        after = await _by_title(store)
        assert {title: group.total for title, group in after.items()} == {
            "first": 2,
            "the ledger did not answer": 1,
        }
        assert after["first"].key != groups["first"].key
        assert [note.text for note in (await store.group(after["first"].key)).notes] == ["look"]


async def test_what_was_said_goes_along_with_most_of_the_letters(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(
            stored(
                *(parked(n, error="often") for n in range(5)),
                parked(10, error="seldom"),
                parked(11, error="alone", origin="mail"),
            )
        )
        groups = await _by_title(store)
        often, seldom, alone = (str(groups[title].id) for title in ("often", "seldom", "alone"))
        clock.now_ms += MINUTE_MS
        await store.set_state(often, GroupState.SNOOZED, who="ann", until_ms=NOON_MS + 9 * MINUTE_MS)
        await store.set_state(seldom, GroupState.MUTED, who="bob")
        await store.set_state(alone, GroupState.RESOLVED, who="bob")
        await store.set_category(often, Category.OVERLOAD, who="ann")
        for name, text in ((often, "of the often"), (seldom, "of the seldom")):
            await store.add_note(name, text, who="bob")
        await regroup(store, ONE)
        orders, mail = sorted(await store.groups(ALL), key=lambda group: -group.total)
        assert (orders.total, orders.state, orders.until_ms) == (
            6,
            GroupState.SNOOZED,
            NOON_MS + 9 * MINUTE_MS,
        )
        assert (orders.category, orders.category_by) == (Category.OVERLOAD, By.PERSON)
        notes = (await store.group(str(orders.id))).notes
        assert {(note.author, note.text) for note in notes} == {
            ("bob", "of the often"),
            ("bob", "of the seldom"),
        }
        assert mail.state is GroupState.RESOLVED
        # and it opens again by what fails after it was resolved
        late = parked(12, error="alone", origin="mail", at_ms=clock.now_ms + 1)
        assert (await store.ingest(by(ONE, late))).reopened == 1
        await check_counts(ground)


async def test_merged_by_a_person_stays_together_and_split_stays_apart(ground: Ground) -> None:
    """Through rules that rename all keys, that join what was split, that part what was merged, and back."""
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        letters = [
            parked(number, error=error, headers={"tenant": f"t{number % 2}"})
            for number, error in enumerate(["first", "second", "third", "fourth"] * 4)
        ]
        await store.ingest(stored(*letters))

        async def together() -> set[frozenset[str]]:
            found: dict[int, set[str]] = {}
            for row in (await store.find(LetterQuery(limit=100))).letters:
                found.setdefault(row.group, set()).add(row.error.partition(": ")[2])
            return {frozenset(some) for some in found.values()}

        groups = await _by_title(store)
        await store.merge(groups["first"].key, groups["second"].key, who="ann")
        await store.merge(groups["third"].key, groups["fourth"].key, who="ann")
        await store.split(groups["fourth"].key, who="bob")
        as_people_said = {frozenset({"first", "second"}), frozenset({"third"}), frozenset({"fourth"})}
        assert await together() == as_people_said
        for grouping in (RENAMED, PLAIN, RENAMED):
            await regroup(store, grouping)
            assert await together() == as_people_said
            await check_counts(ground)
        # letters that come are with them
        await store.ingest(by(RENAMED, parked(100, error="second"), parked(101, error="fourth")))
        assert await together() == as_people_said
        await regroup(store, BY_TENANT)
        assert frozenset({"first", "second"}) in await together()
        assert not any({"third", "fourth"} <= some for some in await together())
        # a rule that makes one of all of them: what was taken apart stays apart
        await regroup(store, ONE)
        assert not any({"third", "fourth"} <= some for some in await together())
        assert any({"first", "second"} <= some for some in await together())
        await regroup(store, ONE)
        await check_counts(ground)
        await regroup(store, RENAMED)
        assert any({"first", "second"} <= some for some in await together())
        assert not any({"third", "fourth"} <= some for some in await together())
        await check_counts(ground)
        # a person may put them together again
        rows = {
            row.error.partition(": ")[2]: row for row in (await store.find(LetterQuery(limit=100))).letters
        }
        third, fourth = (str(rows[error].group) for error in ("third", "fourth"))
        await store.merge(third, fourth, who="ann")
        await regroup(store, ONE)
        assert any({"third", "fourth"} <= some for some in await together())


async def test_what_is_forgotten_goes_along(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*(parked(n, at_ms=NOON_MS + n * MINUTE_MS) for n in range(6))))
        assert await store.forget_some("deadletter.parked", Retention(letters=2)) == 4
        await regroup(store, RENAMED)
        (group,) = await store.groups(ALL)
        assert (group.total, group.open) == (6, 2)
        assert (group.first_ms, group.last_ms) == (NOON_MS, NOON_MS + 5 * MINUTE_MS)
        told = await store.group(str(group.id))
        assert [letters for _, letters in told.minutes] == [1] * 6
        assert {(tag.kind, tag.letters) for tag in told.tags} == {("release", 6), ("host", 6)}


async def test_an_instance_that_remembers_a_group_that_is_gone(ground: Ground) -> None:
    """It is asked for anew: nothing is counted into a group that is not there, nor into another one that has
    its number."""
    async with letters_at(ground) as store, letters_at(ground) as other:
        await store.regrouping.put_in_force(PLAIN)
        await other.ingest(stored(parked(1), parked(2, error="other")))
        await regroup(store, RENAMED)
        await regroup(store, ONE)
        assert len(await store.groups(ALL)) == 1
        done = await other.ingest(stored(parked(3), parked(4, error="other"), parked(5, error="new")))
        assert (done.new, done.new_groups) == (3, 3)
        groups = {group.title.partition(": ")[2]: group.total for group in await store.groups(ALL)}
        assert len(groups) == 3 or sum(groups.values()) == 5
        assert sum(group.total for group in await store.groups(ALL)) == 5
        await check_counts(ground)
        merged = {group.title: group for group in await store.groups(ALL) if group.total == 1}
        first, second = list(merged.values())[:2]
        await store.merge(str(first.id), str(second.id), who="ann")
        await other.ingest(stored(parked(6), parked(7, error="other"), parked(8, error="new")))
        assert sum(group.total for group in await store.groups(ALL)) == 8
        await check_counts(ground)


async def test_letters_come_while_they_are_grouped_anew(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two instances that store letters by the old rules and the new, two that group anew, and people."""
    monkeypatch.setattr("deadletter.store.groups.regrouping.AT_ONCE", 5)
    letters = _some(99, 200)
    async with letters_at(ground) as store, letters_at(ground) as other, letters_at(ground) as third:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*letters[:60]))
        await other.ingest(stored(*letters[60:63]))

        async def bring() -> None:
            for start in range(63, 200, 5):
                await other.ingest(by(RENAMED if start % 2 else PLAIN, *letters[start : start + 5]))

        async def people() -> None:
            for number in range(1, 40, 3):
                await third.discard([number, number + 1], who="bob", why="")

        await asyncio.gather(regroup(store, RENAMED), regroup(third, RENAMED), bring(), people())
        # what came by the old rules after it was passed
        ground.sql("UPDATE deadletter_groupings SET stage = 'behind'")
        await regroup(store, RENAMED)
        await check_counts(ground)
        keys = {one.fingerprint.key for one in by(RENAMED, *letters)}
        assert {group.key for group in await store.groups(ALL)} == keys


async def test_a_rule_says_of_which_category(ground: Ground) -> None:
    data = Grouping(rules=(GroupingRule(error="TimeoutError", category=Category.DATA),))
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1), parked(2, error="other", kind="KeyError")))
        await store.set_category((await _by_title(store))["other"].key, Category.PERMANENT, who="ann")
        assert (await _by_title(store))["the ledger did not answer"].category is Category.TRANSIENT
        await regroup(store, data)
        groups = await _by_title(store)
        ruled, said = groups["the ledger did not answer"], groups["other"]
        assert (ruled.category, ruled.category_by) == (Category.DATA, By.RULE)
        assert (said.category, said.category_by, said.category_why) == (
            Category.PERMANENT,
            By.PERSON,
            "ann says so",
        )
        await regroup(store, PLAIN)
        assert (await _by_title(store))["the ledger did not answer"].category_by is By.GUESS


async def test_letters_that_come_meanwhile_are_not_read_while_nobody_can_write(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who brings letters waits for one transaction of grouping anew: it reads a few letters, and no more."""
    reads: list[tuple[bool, int]] = []
    read = regrouping.readable

    async def counted(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Letter]:
        writes = bool(
            connection.sync_connection and connection.sync_connection.get_execution_options().get("writes")
        )
        reads.append((writes, len(ids)))
        return await read(connection, ids)

    monkeypatch.setattr(regroup_ending, "readable", counted)
    tenants = Grouping(rules=(GroupingRule(group="of x", headers=(("tenant", "x"),)),))
    here = [parked(number, headers={"tenant": "xy"[number % 2]}) for number in range(40)]
    late = [parked(number, headers={"tenant": "y"}, at_ms=NOON_MS - number) for number in range(100, 400)]
    last = [parked(number, headers={"tenant": "y"}, at_ms=NOON_MS + number) for number in range(500, 520)]
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*here))
        while (await store.regrouping.told(tenants)).stage is not RegroupStage.MENDING:
            await store.regrouping.go_on(tenants, who="ann", for_s=0.0)
        await store.ingest(by(tenants, *late))
        looks = regroup_ending.look

        async def and_more_come(*args: Any) -> regroup_ending.LateTags:
            found = await looks(*args)
            if last:
                await store.ingest(by(tenants, *last))
                last.clear()
            return found

        monkeypatch.setattr(regroup_ending, "look", and_more_come)
        await regroup(store, tenants)
        await check_counts(ground)
        group = max(await store.groups(ALL), key=lambda one: one.total)
        assert (group.total, group.first_ms, group.last_ms) == (340, NOON_MS - 399, NOON_MS + 519)
    assert (True, 20) in reads
    assert (False, 300) in reads
    assert [some for writes, some in reads if writes and some > 50] == []


async def test_groups_with_a_long_past_are_handed_over_one_by_one(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regroup_ending, "HANDED_OVER", 12)
    handed: list[int] = []
    hand_over = regroup_ending._hand_over

    async def counted(connection: AsyncConnection, gone: Mapping[int, int], parted: Collection[int]) -> None:
        handed.append(len(gone))
        await hand_over(connection, gone, parted)

    monkeypatch.setattr(regroup_ending, "_hand_over", counted)
    old = [
        parked(number, error=f"error of {'abcdefgh'[number % 8]}", at_ms=NOON_MS - number * MINUTE_MS)
        for number in range(64)
    ]
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*old))
        while await store.forget_some("deadletter.parked", Retention(letters=8)):
            pass
        await regroup(store, ONE)
        assert [one.total for one in await store.groups(ALL)] == [64]
    assert ground.sql("SELECT sum(letters) FROM deadletter_counts") == "64"
    assert sum(handed) == 8
    assert max(handed) == 1, "eight counts and some tags are more than half of twelve"


_KILLED = """
import asyncio, os, sys
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.store.groups import regrouping
from deadletter.store.letters.letter_store import open_letters

regrouping.AT_ONCE = 9

async def main(url, group, portions):
    async with open_letters(url, prepare=False) as store:
        grouping = Grouping(rules=(GroupingRule(group=group),))
        for number in range(portions):
            await store.regrouping.go_on(grouping, who="ann", for_s=0.0)
        work = store.regrouping._work

        async def killed(*args):
            await work(*args)
            os.kill(os.getpid(), 9)

        store.regrouping._work = killed
        await store.regrouping.go_on(grouping, who="ann", for_s=0.0)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.slow
@pytest.mark.kills
async def test_killed_in_the_middle_it_goes_on_there(ground: Ground) -> None:
    """In each stage, when everything is written and nothing is committed."""
    async with letters_at(ground) as store:
        await store.regrouping.put_in_force(PLAIN)
        await store.ingest(stored(*_some(7, 16)))
        groups = await store.groups(ALL)
        await store.merge(str(groups[0].id), str(groups[1].id), who="ann")
        await store.add_note(str(groups[2].id), "kept", who="ann")
    stages: list[str] = []
    for killed in range(40):
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", _KILLED, ground.url, "one", "1" if killed % 2 or killed == 0 else "0"],
            check=False,
        )
        assert ended.returncode == -9
        stages.append(ground.sql("SELECT stage FROM deadletter_groupings ORDER BY id DESC LIMIT 1"))
        if stages[-1] == "retiring" and stages.count("retiring") > 1:
            break
    assert {"moving", "mending", "retiring"} <= set(stages)
    async with letters_at(ground) as store:
        told = await regroup(store, ONE)
        assert (told.looked_at, told.moved) == (16, 16)
        await check_counts(ground)
        told_of = [await store.group(str(group.id)) for group in await store.groups(ALL)]
        assert [note.text for one in told_of for note in one.notes] == ["kept"]
