"""Groups for somebody who sees some vhosts, or some queues: what is told of them, and what may be changed.

About `store.finding.within_scope`, `store.finding.facets`, `store.groups.group_table`,
`store.groups.group_details`, `store.groups.group_changes`, `store.groups.group_rows`,
`store.replays.replay_closing`, `operations.records.store_records`, `operations.records.masked_groups`,
`operations.records.single_letter`, `operations.repairs.drafting`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

import pytest
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked

from deadletter.core.access.field_masks import field_masks
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.errors import ChangedMeanwhile, NotAllowed, NotStored, UsageError
from deadletter.operations.records.records import GroupChange, GroupLine
from deadletter.operations.records.store_records import StoreRecords
from deadletter.operations.records.where_programs import Programs
from deadletter.operations.replays.replay_told import DraftWish, EditWish
from deadletter.operations.replays.store_replays import StoreReplays
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.replay_store import ReplayStore

SHOP: Final = Scope(vhosts=("shop",))
BANK: Final = Scope(vhosts=("bank",))
ORDERS: Final = Scope(queues=("orders",))
SHOPS_ORDERS: Final = Scope(vhosts=("shop",), queues=("orders",))
ALL: Final = GroupQuery(states=())
MUTED: Final = GroupChange(state=GroupState.MUTED)
PLACES: Final = [("shop", "orders"), ("bank", "orders"), ("shop", "mail"), ("bank", "mail")]


@dataclass
class House:
    """Two letters of each place failed alike, one a day ago and one now. What they say beside the error names
    the place, so whoever is told of another place is told a word of it."""

    ground: Ground
    store: LetterStore
    records: StoreRecords
    clock: Clock

    async def groups(self, scope: Scope = WHOLE, query: GroupQuery = ALL) -> dict[tuple[str, str], GroupLine]:
        page = await self.records.within(scope).groups(query)
        return {(one.vhost, one.origin): one for one in page.groups}

    async def all_told(self, scope: Scope) -> str:
        """Whatever may be asked about groups, by one who sees so much."""
        records = self.records.within(scope)
        page = await records.groups(ALL)
        said = [repr(page), repr(await records.facets(LetterQuery(state=None)))]
        said.append(repr(await records.facets(LetterQuery(state=None, error="refused"))))
        said += [repr(await records.group(str(one.id))) for one in page.groups]
        rows = (await records.letters(LetterQuery(state=None, limit=100))).letters
        said += [repr(await records.letter(str(row.id))) for row in rows]
        return "".join(said)


def failed(number: int, vhost: str, origin: str, *, at_ms: int = NOON_MS, kind: str = "") -> StoredLetter:
    one = parked(
        number,
        origin=origin,
        kind=kind or "TimeoutError",
        error="the gateway refused it",
        host=f"host-of-{vhost}-{origin}",
        release=f"release-of-{vhost}-{origin}",
        at_ms=at_ms,
    )
    return stored_letter(one, now_ms=NOON_MS, vhost=vhost)


@pytest.fixture
async def house(ground: Ground) -> AsyncIterator[House]:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        for number, place in enumerate(PLACES):
            await store.ingest([failed(number, *place, at_ms=NOON_MS - 25 * 60 * MINUTE_MS)])
            await store.ingest([failed(10 + number, *place)])
        programs = Programs()
        yield House(ground, store, StoreRecords(store, programs, clock), clock)
        await programs.close()


async def merged(house: House, into: tuple[str, str], other: tuple[str, str]) -> int:
    """Its number. Of both groups people had said something, each naming its place."""
    found = await house.groups()
    for (vhost, origin), category in ((into, Category.OVERLOAD), (other, Category.DATA)):
        name = str(found[vhost, origin].id)
        await house.records.note(name, f"note-of-{vhost}-{origin}", who=f"{vhost}-{origin}-ann")
        await house.store.set_category(name, category, who=f"{vhost}-{origin}-bob")
        house.ground.sql(
            f"UPDATE deadletter_groups SET title = 'title-of-{vhost}-{origin}', "
            f"culprit = 'culprit-of-{vhost}-{origin}', error_type = 'Error.of-{vhost}-{origin}' "
            f"WHERE id = {name}"
        )
    return (await house.records.merge(str(found[into].id), str(found[other].id), who="ann")).id


# -- two vhosts ------------------------------------------------------------------------------------------
async def test_queues_of_one_name_that_fail_alike_are_a_group_in_each_vhost(house: House) -> None:
    found = await house.groups()
    assert set(found) == set(PLACES)
    assert len({one.id for one in found.values()}) == len({one.key for one in found.values()}) == 4
    assert {one.title for one in found.values()} == {"TimeoutError: the gateway refused it"}
    detail = await house.records.group(str(found["shop", "orders"].id))
    assert detail.parts[:2] == (("vhost", "shop", True), ("origin", "orders", True))


@pytest.mark.parametrize(
    ("scope", "mine"),
    [
        (SHOP, [("shop", "orders"), ("shop", "mail")]),
        (BANK, [("bank", "orders"), ("bank", "mail")]),
        (ORDERS, [("shop", "orders"), ("bank", "orders")]),
        (SHOPS_ORDERS, [("shop", "orders")]),
        (Scope(vhosts=("*o*",)), [("shop", "orders"), ("shop", "mail")]),
        (Scope(vhosts=("",)), []),
        (Scope(vhosts=("nowhere",)), []),
    ],
)
async def test_each_sees_and_changes_theirs_alone(
    house: House, scope: Scope, mine: list[tuple[str, str]]
) -> None:
    everything = await house.groups()
    found = await house.groups(scope)
    assert sorted(found) == sorted(mine)
    told = await house.all_told(scope)
    for place in PLACES:
        assert ("-".join(("host-of", *place)) in told) is (place in mine)
    for place, one in everything.items():
        records = house.records.within(scope)
        if place in mine:
            assert found[place] == one, "the same as everybody sees"
            assert (one.total, one.open, sum(one.hours)) == (2, 2, 1)
            assert (await records.change_group(str(one.id), MUTED, who="x")).state is GroupState.MUTED
            assert (await records.note(one.key, "mine", who="x")).id == one.id
            continue
        for name in (str(one.id), one.key, one.key[:20]):
            with pytest.raises(NotStored, match="none is called so"):
                await records.group(name)
            with pytest.raises(NotStored, match="none is called so"):
                await records.change_group(name, MUTED, who="x")
            with pytest.raises(NotStored, match="none is called so"):
                await records.note(name, "x", who="x")
            with pytest.raises(NotStored, match="none is called so"):
                await records.merge(name, str(next(iter(found.values())).id) if found else name, who="x")
    after = await house.groups()
    muted = {place for place, one in after.items() if one.state is GroupState.MUTED}
    assert muted == set(mine)
    assert {place for place, one in after.items() if one.note} == set(mine)


async def test_groups_are_found_by_vhost(house: House) -> None:
    for vhost in ("shop", "bank"):
        query = replace(ALL, vhost=vhost)
        assert set(await house.groups(query=query)) == {(vhost, "orders"), (vhost, "mail")}
        assert set(await house.groups(SHOP, query)) == ({*PLACES[::2]} if vhost == "shop" else set())
    assert await house.groups(query=replace(ALL, vhost="nowhere")) == {}
    assert set(await house.groups(query=replace(ALL, vhost="shop", origin="mail"))) == {("shop", "mail")}
    number = await merged(house, ("shop", "orders"), ("bank", "orders"))
    (found,) = (await house.groups(query=replace(ALL, vhost="bank", origin="orders"))).values()
    assert found.id == number, "it has letters of both"


async def test_letters_whose_vhost_nobody_knows_are_seen_by_whom_sees_all(house: House) -> None:
    await house.store.ingest([failed(90, "", "orders")])
    found = await house.groups()
    assert ("", "orders") in found
    assert house.ground.sql(f"SELECT vhost FROM deadletter_groups WHERE id = {found['', 'orders'].id}") == ""
    for scope in (SHOP, BANK, SHOPS_ORDERS):
        assert all(vhost for vhost, _ in await house.groups(scope))
    assert ("", "orders") in await house.groups(ORDERS), "all vhosts, known or not"


# -- merged ----------------------------------------------------------------------------------------------
_MERGED: Final = [
    (("bank", "orders"), ("shop", "orders"), SHOP),
    (("shop", "mail"), ("shop", "orders"), ORDERS),
    (("bank", "mail"), ("shop", "orders"), SHOPS_ORDERS),
    (("bank", "mail"), ("shop", "orders"), Scope(vhosts=("shop",), masks=field_masks(["body.card"]))),
]


@pytest.mark.parametrize(("root", "member", "scope"), _MERGED)
async def test_who_sees_a_member_is_told_nothing_of_the_root(
    house: House, root: tuple[str, str], member: tuple[str, str], scope: Scope
) -> None:
    number = await merged(house, root, member)
    mine = "-".join(member)
    records = house.records.within(scope)
    line = next(one for one in (await records.groups(ALL)).groups if one.id == number)
    assert (line.vhost, line.origin) == member
    assert (line.total, line.open, sum(line.hours)) == (2, 2, 1)
    assert (line.release, line.note) == (f"release-of-{mine}", f"note-of-{mine}")
    assert line.category_why == f"{mine}-bob says so"
    detail = await records.group(str(number))
    assert detail.group.key == line.key
    assert [note.text for note in detail.notes] == [f"note-of-{mine}"]
    assert {tag.value for tag in detail.tags} == {f"release-of-{mine}", f"host-of-{mine}"}
    assert [(kind, text) for kind, text, _ in detail.parts[:2]] == [
        ("vhost", member[0]),
        ("origin", member[1]),
    ]
    assert sum(letters for _, letters in detail.minutes) == 1
    assert (detail.merged, detail.partly) == ((), True)
    told = await house.all_told(scope)
    assert f"of-{'-'.join(root)}" not in told
    assert f"of-{mine}" in told
    # by the root's words nothing is found, by the member's it is; by titles not where fields are masked
    for said, of in ((root, 0), (member, 1)):
        for word in (f"culprit-of-{'-'.join(said)}", f"title-of-{'-'.join(said)}"):
            found = await records.groups(replace(ALL, text=word))
            if not (scope.masks and word.startswith("title")):
                assert len(found.groups) == of, word
    assert number in {one.id for one in (await records.groups(replace(ALL, origin=member[1]))).groups}
    for category in (Category.OVERLOAD, Category.DATA):
        some = {one.id for one in (await records.groups(replace(ALL, category=category))).groups}
        assert (number in some) is (category is Category.DATA)
    if root[0] != member[0]:
        assert number not in {one.id for one in (await records.groups(replace(ALL, vhost=root[0]))).groups}
    if root[1] != member[1]:
        assert number not in {one.id for one in (await records.groups(replace(ALL, origin=root[1]))).groups}


@pytest.mark.parametrize(("root", "member", "scope"), _MERGED)
async def test_who_sees_a_part_changes_nothing(
    house: House, root: tuple[str, str], member: tuple[str, str], scope: Scope
) -> None:
    before = await house.groups()
    number = await merged(house, root, member)
    records = house.records.within(scope)
    own = next(one for one in (await records.groups(ALL)).groups if one.id == number)
    for name in (str(number), own.key):
        for call in (
            records.change_group(name, MUTED, who="x"),
            records.change_group(name, GroupChange(category=Category.BUG), who="x"),
            records.note(name, "x", who="x"),
            records.merge(name, str(number), who="x"),
        ):
            with pytest.raises(
                NotAllowed, match="letters of another queue or vhost, too, which are not theirs"
            ):
                await call
    with pytest.raises(NotAllowed, match="not theirs"):
        await records.split(own.key, who="x")
    for name in (before[root].key, str(before[root].id) if before[root].id != number else before[root].key):
        with pytest.raises(NotStored):
            await records.group(name)
    with pytest.raises(NotStored):
        await records.note(before[root].key, "x", who="x")
    with pytest.raises(UsageError, match="none is so"):
        await records.split(before[root].key, who="x")
    whole = await house.records.group(str(number))
    assert (whole.group.state, whole.group.total, len(whole.notes)) == (GroupState.OPEN, 4, 2)
    assert whole.merged == (before[member].key,)


async def test_who_sees_the_root_alone_sees_its_own_part(house: House) -> None:
    number = await merged(house, ("shop", "orders"), ("bank", "orders"))
    detail = await house.records.within(SHOP).group(str(number))
    assert (detail.group.title, detail.group.total) == ("title-of-shop-orders", 2)
    assert detail.merged == ()
    assert "of-bank-orders" not in await house.all_told(SHOP)
    with pytest.raises(NotAllowed):
        await house.records.within(SHOP).note(str(number), "x", who="x")
    whole = await house.records.group(str(number))
    assert (whole.group.vhost, whole.group.total, len(whole.merged)) == ("shop", 4, 1)


async def test_who_sees_all_members_changes_them_all(house: House) -> None:
    number = await merged(house, ("shop", "orders"), ("shop", "mail"))
    records = house.records.within(SHOP)
    seen = (await records.group(str(number))).group
    assert seen == (await house.records.group(str(number))).group
    assert not (await records.group(str(number))).partly
    changed = await records.change_group(str(number), replace(MUTED, version=seen.version), who="x")
    assert changed.state is GroupState.MUTED
    with pytest.raises(ChangedMeanwhile):
        await records.change_group(str(number), replace(MUTED, version=seen.version), who="x")
    await records.split((await records.group(str(number))).merged[0], who="x")
    assert len(await house.groups(SHOP)) == 2
    both = Scope(vhosts=("shop", "bank"), queues=("orders",))
    other = await house.groups(both)
    one = await house.records.within(both).merge(*(str(group.id) for group in other.values()), who="x")
    assert one.total == 4


async def test_a_short_key_takes_nothing_apart_that_is_not_theirs(house: House) -> None:
    """The beginning of a key may be that of a group of theirs, and of a merged one of others."""
    found = await house.groups()
    ids = {place: one.id for place, one in found.items()}
    for place, key in ((("shop", "orders"), "feed" + "0" * 28), (("bank", "mail"), "feed" + "1" * 28)):
        house.ground.sql(f"UPDATE deadletter_groups SET key = '{key}' WHERE id = {ids[place]}")
    await house.records.merge(str(ids["bank", "orders"]), str(ids["bank", "mail"]), who="ann")
    with pytest.raises(UsageError, match="none is so"):
        await house.records.within(SHOP).split("feed", who="x")
    assert (await house.records.within(SHOP).group("feed")).group.id == ids["shop", "orders"]
    assert len((await house.records.group(str(ids["bank", "orders"]))).merged) == 1


async def test_the_release_with_which_others_fail_again_is_not_told(house: House) -> None:
    number = await merged(house, ("shop", "orders"), ("bank", "orders"))
    await house.records.change_group(str(number), GroupChange(state=GroupState.RESOLVED), who="ann")
    house.clock.now_ms += MINUTE_MS
    await house.store.ingest([failed(50, "bank", "orders", at_ms=house.clock.now_ms)])
    whole = (await house.records.group(str(number))).group
    assert (whole.state, whole.reopened_release) == (GroupState.OPEN, "release-of-bank-orders")
    seen = (await house.records.within(SHOP).group(str(number))).group
    assert (seen.state, seen.reopened_ms, seen.reopened_release) == (GroupState.OPEN, whole.reopened_ms, "")


# -- groups of several vhosts, as they were made before --------------------------------------------------
def before_vhosts(one: StoredLetter) -> StoredLetter:
    """As a version that did not count the vhost would have grouped it."""
    without = stored_letter(one.letter, now_ms=NOON_MS, vhost="")
    return one._replace(fingerprint=without.fingerprint)


async def mixed(house: House) -> int:
    """A group of two vhosts. It is made of a letter of one of them."""
    some = [failed(70, "bank", "stock", kind="BankError"), failed(71, "shop", "stock", kind="BankError")]
    for one in map(before_vhosts, some):
        await house.store.ingest([one])
    number = int(house.ground.sql("SELECT max(id) FROM deadletter_groups"))
    house.ground.sql(
        f"UPDATE deadletter_groups SET vhost = NULL, title = 'title-of-several' WHERE id = {number}"
    )
    await house.store.add_note(str(number), "note-of-several", who="ann")
    return number


async def test_of_a_group_of_several_vhosts_only_the_letters_are_told(house: House) -> None:
    number = await mixed(house)
    whole = await house.records.group(str(number))
    assert (whole.group.vhost, whole.group.total) == ("", 2)
    assert ("", "stock") in await house.groups(Scope(queues=("stock",)))
    records = house.records.within(SHOP)
    assert number not in {one.id for one in (await records.groups(ALL)).groups}
    with pytest.raises(NotStored):
        await records.group(str(number))
    with pytest.raises(NotStored):
        await records.change_group(str(number), MUTED, who="x")
    (row,) = (await records.letters(LetterQuery(origin="stock"))).letters
    told = (await records.letter(str(row.id))).group
    assert (told.id, told.vhost, told.origin, told.total, told.open) == (number, "shop", "stock", 1, 1)
    assert told.title == "BankError: the gateway refused it", "made of their own letter"
    replays = StoreReplays(house.store, house.records.programs, scope=SHOP)
    edit = DraftWish(edit=EditWish(program='.headers.fixed = "yes"'))
    await replays.save_draft(str(row.id), edit, who="x")
    proposed = await replays.propose(str(row.id))
    assert (proposed.group, proposed.group_key) == (number, "")
    for query in (LetterQuery(origin="stock"), LetterQuery(origin="stock", error="refused")):
        counted = await records.facets(query)
        assert (counted.total, counted.by["group"], counted.by["category"]) == (1, (), ())
        assert [one.value for one in counted.by["origin"]] == ["stock"]
    assert "of-several" not in await house.all_told(SHOP)
    assert "of-several" in await house.all_told(WHOLE)


async def test_letters_of_another_vhost_that_an_older_instance_put_there_hide_a_group(house: House) -> None:
    """It knows no vhosts of groups, and counts letters of both in one."""
    await house.store.ingest([before_vhosts(failed(80, "shop", "stock"))])
    number = int(house.ground.sql("SELECT max(id) FROM deadletter_groups"))
    assert number in {one.id for one in (await house.groups(SHOP)).values()}
    await house.store.ingest([before_vhosts(failed(81, "bank", "stock"))])
    assert number not in {one.id for one in (await house.groups(SHOP)).values()}
    assert "of-bank-stock" not in await house.all_told(SHOP)


async def test_an_empty_member_is_in_nobodys_way(house: House) -> None:
    """Grouping anew leaves one where a person had merged it: it has nothing, not even a vhost."""
    number = (await house.groups())["shop", "orders"].id
    house.ground.sql(
        "INSERT INTO deadletter_groups (key, origin, title, culprit, error_type, parts, category, "
        "category_by, category_why, guess, guess_why, state, first_ms, last_ms, total, merged_into) "
        "SELECT 'empty', origin, 'title-of-nobody', '', '', '[]', 'bug', 'guess', '', 'bug', '', 'open', "
        f"1, 1, 0, id FROM deadletter_groups WHERE id = {number}"
    )
    assert (await house.records.within(SHOP).note(str(number), "x", who="x")).id == number
    assert "of-nobody" not in await house.all_told(SHOP)


# -- what is done for them -------------------------------------------------------------------------------
@pytest.mark.parametrize(("scope", "state"), [(SHOP, GroupState.OPEN), (WHOLE, GroupState.RESOLVED)])
async def test_a_replay_resolves_no_group_that_is_not_all_theirs(
    house: House, scope: Scope, state: GroupState
) -> None:
    number = await merged(house, ("bank", "orders"), ("shop", "orders"))
    others = (await house.records.letters(LetterQuery(group=number, vhost="bank"))).letters
    await house.records.discard([row.id for row in others], who="ann", why="")
    replays = ReplayStore(house.store)
    plan = ReplayPlan(selection=LetterQuery(group=number, scope=scope), vhost="shop", resolves=True)
    begun = await replays.begin(plan, who="x", why="")
    while await replays.freeze_some(begun.id):
        pass
    found = await replays.next_portion(begun.id, 10)
    assert len(found) == 2
    await replays.settled(begun.id, [one.row for one in found], {}, at_ms=NOON_MS)
    await replays.quiet(begun.id, now_ms=NOON_MS + plan.outcome_ms)
    await replays.finish(begun.id)
    assert (await house.records.group(str(number))).group.state is state


async def test_a_masked_title_is_compared_with_letters_that_are_seen(house: House) -> None:
    """Both vhosts have a letter with this very title; what one of them has in a masked field is no secret of
    the other's, and nobody learns it by what is hidden."""
    words = {"shop": "shopword", "bank": "bankword"}
    for number, (vhost, word) in enumerate(words.items(), 60):
        one = parked(
            number,
            origin="stock",
            error="shopword met bankword",
            body=f'{{"card": "{word}"}}'.encode(),
        )
        await house.store.ingest([stored_letter(one, now_ms=NOON_MS, vhost=vhost)])
    found = await house.groups(query=replace(ALL, origin="stock"))
    await house.records.merge(*(str(one.id) for one in found.values()), who="ann")
    titles = {}
    for vhost in words:
        scope = Scope(vhosts=(vhost,), masks=field_masks(["body.card"]))
        (line,) = (await house.groups(scope, replace(ALL, origin="stock"))).values()
        titles[vhost] = line.title
    assert titles == {
        "shop": "TimeoutError: *** met bankword",
        "bank": "TimeoutError: shopword met ***",
    }
