"""Somebody who sees some queues, or some vhosts, or not every field: lists, counts, search, export, changes.

About `store.finding.within_scope`, `operations.records.store_records`, `operations.records.masked_rows`,
`operations.replays.replay_scope`, `operations.replays.store_replays`, `core.access.scope`,
`core.replaying.replay_plan`, `core.replaying.masked_letter`, `store.letters.large_letters`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from tests.store.grounds import Ground
from tests.store.parked import Clock, letters_at, parked

from deadletter.core.access.field_masks import field_masks
from deadletter.core.access.scope import Scope
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.grouping.stored_letter import UNKNOWN_ORIGIN, stored_letter
from deadletter.core.replaying.replay_target import ToExchange, ToQueue
from deadletter.errors import NotAllowed, NotStored
from deadletter.operations.records.records import GroupChange
from deadletter.operations.records.store_records import StoreRecords
from deadletter.operations.records.where_programs import Programs
from deadletter.operations.replays.replay_told import EditWish, ReplayWish
from deadletter.operations.replays.store_replays import StoreReplays
from deadletter.store.finding.searching import find
from deadletter.store.letters.large_letters import LARGE_BYTES
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.recipe_table import Recipe
from deadletter.store.replays.replay_store import ReplayStore

CARD = "4111111111111111"
ORDERS = Scope(queues=("orders*",))
SHOP = Scope(vhosts=("shop",))
BOTH = Scope(vhosts=("shop",), queues=("mail",))
NOTHING = Scope(queues=("nothing",))
ALL = LetterQuery(state=None, limit=100)


@dataclass
class House:
    store: LetterStore
    records: StoreRecords
    replays: StoreReplays

    async def ids(self, scope: Scope, query: LetterQuery = ALL) -> set[int]:
        return {row.id for row in (await self.records.within(scope).letters(query)).letters}


def body(number: int) -> bytes:
    return f'{{"number": {number}, "card": {{"number": "{CARD}", "holder": "Ada"}}, "tag": "green"}}'.encode()


@pytest.fixture
async def house(ground: Ground) -> AsyncIterator[House]:
    async with letters_at(ground, Clock()) as store:
        number = 0
        for vhost in ("shop", "bank"):
            for origin in ("orders", "orders.eu", "mail", "Orders"):
                number += 1
                one = parked(
                    number,
                    origin=origin,
                    error=f"the gateway refused {CARD} of Ada",
                    body=body(number),
                    headers={"authorization": "Bearer s3cret-s3cret", "tenant": "acme"},
                )
                await store.ingest([stored_letter(one, now_ms=store.now_ms(), vhost=vhost)])
        programs = Programs()
        yield House(store, StoreRecords(store, programs), StoreReplays(store, programs))
        await programs.close()


async def rows(house: House) -> dict[int, tuple[str, str]]:
    return {row.id: (row.vhost, row.origin) for row in (await house.records.letters(ALL)).letters}


# -- what is not theirs ----------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", [ORDERS, SHOP, BOTH, NOTHING], ids=["queues", "vhost", "both", "nothing"])
async def test_lists_counts_and_searches_show_theirs_alone(house: House, scope: Scope) -> None:
    everything = await rows(house)
    mine = {one for one, (vhost, origin) in everything.items() if scope.sees(vhost, origin)}
    assert len(everything) == 8
    for query in (
        ALL,
        LetterQuery(text="green", limit=100),
        LetterQuery(error="gateway", limit=100),
        LetterQuery(headers=(("tenant", "ac*"),), limit=100),
        LetterQuery(where=".body.number > 0", limit=100),
        LetterQuery(ids=tuple(everything), limit=100),
    ):
        assert await house.ids(scope, query) == mine, query
        counted = await house.records.within(scope).facets(query)
        assert counted.total == len(mine), query
        assert {one.value for one in counted.by.get("origin", ())} == {everything[one][1] for one in mine}
    assert await house.ids(scope, LetterQuery(vhost="bank", origin="mail")) <= mine
    groups = (await house.records.within(scope).groups(GroupQuery(states=()))).groups
    assert {one.origin for one in groups} == {everything[one][1] for one in mine}
    assert sum(one.open for one in groups) == len(mine)
    if scope.all_vhosts is False:
        assert sum(one.total for one in groups) == len(mine)


async def test_pages_go_on_within_what_is_theirs(house: House) -> None:
    seen: list[int] = []
    after = None
    while True:
        page = await house.records.within(ORDERS).letters(LetterQuery(limit=1, after=after))
        seen += [row.id for row in page.letters]
        after = page.more
        if after is None:
            break
    assert sorted(seen) == sorted(await house.ids(ORDERS))


async def test_a_stolen_number_or_id_is_not_found(house: House) -> None:
    scoped, replays = house.records.within(BOTH), house.replays.within(BOTH)
    for number, (vhost, origin) in (await rows(house)).items():
        theirs = BOTH.sees(vhost, origin)
        row = (await house.records.letter(str(number))).letter
        group = str(row.group)
        for name in (str(number), row.letter_id, row.letter_id[:-1] if number > 100 else row.letter_id):
            if theirs:
                assert (await scoped.letter(name)).letter.id == number
                assert await scoped.body(name) == body(number)
                continue
            for call in (scoped.letter, scoped.body, replays.draft, replays.propose):
                with pytest.raises(NotStored, match="no letter is called so"):
                    await call(name)
            with pytest.raises(NotStored):
                await replays.drop_draft(name, who="x")
        assert (number in await scoped.exact([number])) is theirs
        if not theirs:
            for name in (group, (await house.records.group(group)).group.key):
                with pytest.raises(NotStored, match="none is called so"):
                    await scoped.group(name)
                with pytest.raises(NotStored):
                    await scoped.note(name, "x", who="x")
                with pytest.raises(NotStored):
                    await scoped.change_group(name, GroupChange(state=GroupState.MUTED), who="x")
                with pytest.raises(NotStored):
                    await scoped.merge(name, name, who="x")


async def test_merged_groups_show_the_part_that_is_theirs(house: House) -> None:
    found = {one.origin: one for one in (await house.records.groups(GroupQuery(vhost="shop"))).groups}
    await house.records.merge(str(found["orders"].id), str(found["mail"].id), who="x")
    scoped = house.records.within(BOTH)
    (group,) = (await scoped.groups(GroupQuery())).groups
    assert (group.id, group.open, group.origin) == (found["orders"].id, 1, "mail")
    with pytest.raises(NotAllowed, match="another queue"):
        await scoped.change_group(str(group.id), GroupChange(state=GroupState.MUTED), who="x")
    letter = (await scoped.letters(LetterQuery())).letters[0]
    assert (await scoped.letter(str(letter.id))).group.open == 1


async def test_nobody_throws_away_what_is_not_theirs(house: House) -> None:
    everything = await rows(house)
    mine = await house.ids(BOTH)
    done = await house.records.within(BOTH).discard(list(everything), who="x", why="")
    assert done.letters == len(mine) == 1
    assert await house.ids(Scope(), LetterQuery(state=LetterState.DISCARDED)) == mine
    await house.records.discard(list(everything), who="y", why="")
    assert (await house.records.within(BOTH).take_back(list(everything), who="x", why="")).letters == 1
    assert await house.ids(Scope(), LetterQuery()) == mine


# -- replays ---------------------------------------------------------------------------------------------
async def test_a_replay_takes_theirs_alone_whoever_freezes_it(house: House) -> None:
    replays = house.replays.within(ORDERS)
    wish = ReplayWish(selection=LetterQuery(text="green"), vhost="bank")
    assert (await replays.preflight(wish)).letters == 2
    begun = await replays.start(wish, who="x", why="")
    kept = ReplayStore(house.store)
    await kept.freeze_some(begun.id)
    assert (await kept.view(begun.id)).letters == 2
    claimed = await house.ids(Scope(), LetterQuery(state=LetterState.CLAIMED))
    assert claimed == await house.ids(replace(ORDERS, vhosts=("bank",)), ALL)


async def test_a_replay_of_others_is_not_there(house: House) -> None:
    begun = await house.replays.start(ReplayWish(selection=LetterQuery(vhost="bank")), who="x", why="")
    await ReplayStore(house.store).freeze_some(begun.id)
    replays = house.replays.within(SHOP)
    assert (await replays.replays()).replays == ()
    for call in (replays.replay(begun.id), replays.outcomes(begun.id), replays.pause(begun.id, who="x"),
                 replays.cancel(begun.id, who="x"), replays.resume(begun.id, who="x")):  # fmt: skip
        with pytest.raises(NotStored):
            await call
    own = await replays.start(ReplayWish(selection=LetterQuery(origin="mail")), who="x", why="")
    assert [one.id for one in (await replays.replays()).replays] == [own.id]
    assert (await replays.pause(own.id, who="x")).state.value == "paused"
    assert len((await house.replays.replays()).replays) == 2


async def test_a_replay_with_letters_of_an_unknown_origin_is_not_theirs(house: House) -> None:
    nobodys = parked(99, origin="", error=None)
    await house.store.ingest([stored_letter(nobodys, now_ms=house.store.now_ms(), vhost="shop")])
    of = {place: number for number, place in (await rows(house)).items()}
    theirs, unknown = of["shop", "orders"], of["shop", UNKNOWN_ORIGIN]
    mixed = ReplayWish(selection=LetterQuery(ids=(theirs, unknown)))
    for wish, seen in ((mixed, 0), (ReplayWish(selection=LetterQuery(ids=(theirs,))), 1)):
        begun = await house.replays.start(wish, who="x", why="")
        await ReplayStore(house.store).freeze_some(begun.id)
        assert len((await house.replays.within(ORDERS).replays()).replays) == seen
        assert (await house.replays.replay(begun.id)).origins == ("orders",)
        await house.replays.cancel(begun.id, who="x")


async def test_letters_are_not_sent_into_queues_of_others(house: House) -> None:
    replays = house.replays.within(ORDERS)
    for wish in (
        ReplayWish(selection=ALL, target=ToQueue(queue="mail")),
        ReplayWish(selection=ALL, target=ToExchange(exchange="amq.direct")),
    ):
        with pytest.raises(NotAllowed):
            await replays.start(wish, who="x", why="")
        with pytest.raises(NotAllowed):
            await replays.preflight(wish)
    with pytest.raises(NotAllowed):
        await house.replays.within(SHOP).start(ReplayWish(selection=ALL, vhost="bank"), who="x", why="")


async def test_recipes_of_others_are_not_there(house: House) -> None:
    for name, origin in (("all", ""), ("mail", "mail"), ("orders", "orders")):
        await house.replays.save_recipe(Recipe(name=name, program=".", origin=origin), who="x")
    replays = house.replays.within(ORDERS)
    assert [one.name for one in (await replays.recipes()).recipes] == ["all", "orders"]
    with pytest.raises(NotStored):
        await replays.delete_recipe("mail", who="x")
    with pytest.raises(NotAllowed):
        await replays.delete_recipe("all", who="x")
    with pytest.raises(NotAllowed):
        await replays.save_recipe(Recipe(name="new", program=".", origin="mail"), who="x")
    assert (await replays.delete_recipe("orders", who="x")).name == "orders"


# -- masked fields ---------------------------------------------------------------------------------------
MASKED = Scope(masks=field_masks(["body.card.number", "header.authorization"]))


async def test_nothing_is_found_by_what_is_masked(house: House) -> None:
    for query in (
        LetterQuery(text=CARD),
        LetterQuery(text="s3cret"),
        LetterQuery(error=CARD),
        LetterQuery(error=f"refused {CARD}"),
        LetterQuery(headers=(("authorization", "*s3cret*"),)),
        LetterQuery(where=f'.body.card.number == "{CARD}"'),
        LetterQuery(where='.headers.authorization | contains("s3cret")'),
    ):
        assert len((await house.records.letters(query)).letters) == 8, query
        page = await house.records.within(MASKED).letters(query)
        assert (page.letters, page.looked_at) == ((), 0), query
        counted = await house.records.within(MASKED).facets(query)
        assert (counted.total, counted.looked_at) == (0, 0)
    for query in (
        LetterQuery(text="green"),
        LetterQuery(error="gateway refused"),
        LetterQuery(headers=(("tenant", "acme"),)),
        LetterQuery(where='.body.card.holder == "Ada"'),
    ):
        assert len((await house.records.within(MASKED).letters(query)).letters) == 8, query


async def test_nothing_that_is_told_has_what_is_masked(house: House) -> None:
    scoped = house.records.within(MASKED)
    rows = (await scoped.letters(LetterQuery())).letters
    told = [repr(await scoped.letter(str(row.id))) for row in rows]
    group = (await scoped.groups(GroupQuery())).groups[0]
    said = repr(rows) + "".join(told) + repr((await scoped.group(str(group.id))).samples)
    said += repr(
        (await house.replays.within(MASKED).preflight(ReplayWish(selection=ALL, vhost="bank"))).sample
    )
    assert CARD not in said
    assert "s3cret" not in said
    assert "the gateway refused *** of Ada" in said
    shown = await scoped.body(str(rows[-1].id))
    assert shown == body(1).replace(f'"{CARD}"'.encode(), b'"***"'), "everything else as it stands"
    with pytest.raises(NotAllowed, match="exact"):
        await scoped.exact([rows[0].id])


async def test_a_selection_that_is_kept_stays_masked(house: House) -> None:
    wish = ReplayWish(selection=LetterQuery(text=CARD), edit=EditWish())
    begun = await house.replays.within(MASKED).start(wish, who="x", why="")
    kept = ReplayStore(house.store)
    await kept.freeze_some(begun.id)
    assert (await kept.view(begun.id)).letters == 0


async def test_a_search_looks_at_the_clock_after_each_large_letter(house: House) -> None:
    """To take a large body apart takes long: fifty of them would take a minute."""
    large = b'{"card": {"number": "%s"}, "pad": "%s"}' % (CARD.encode(), b"y" * LARGE_BYTES)
    for number in (101, 102, 103):
        one = parked(number, origin="large", error=f"refused {CARD}", body=large, headers={})
        await house.store.ingest([stored_letter(one, now_ms=house.store.now_ms(), vhost="shop")])
    told = Scope(masks=field_masks(["body.card"]))
    seconds = itertools.count()
    looked_at = []
    for scope in (Scope(), told):
        asked = LetterQuery(origin="large", headers=(("tenant", "nobody"),), state=None, scope=scope)
        async with house.store.connections.reading() as connection:
            page = await find(connection, asked, clock=lambda: float(next(seconds)))
        looked_at.append((page.looked_at, page.more is None))
    assert looked_at == [(3, True), (1, False)]
    assert await house.ids(told, LetterQuery(origin="large", error=CARD, state=None)) == set()
    assert len(await house.ids(told, LetterQuery(origin="large", error="refused", state=None))) == 3
