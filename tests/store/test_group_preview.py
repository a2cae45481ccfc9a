"""What other rules would make of stored letters. About `store.groups.group_preview`."""

from __future__ import annotations

from tests.store.grounds import Ground
from tests.store.parked import letters_at, parked, stored

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule


async def test_what_would_be_joined_and_what_parted(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(
            stored(
                *(parked(n, error="disk full", headers={"tenant": f"t{n % 2}"}) for n in range(10)),
                parked(20, error="the ledger did not answer"),
                parked(21, error="the ledger was too late"),
            )
        )
        assert (await store.preview(Grouping())).joined == ()
        rules = (
            GroupingRule(message="the ledger*", group="ledger"),
            GroupingRule(message="disk*", group="{default} {header:tenant}"),
        )
        seen = await store.preview(Grouping(rules=rules))
        assert (seen.before, seen.after, seen.letters) == (3, 3, 12)
        assert [len(one.groups) for one in seen.joined] == [2]
        assert [one.into for one in seen.parted] == [2]
        assert len(await store.groups(GroupQuery(states=()))) == 3, "nothing is changed"


async def test_what_a_person_merged_is_one(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1, error="disk full"), parked(2, error="no space left")))
        first, second = await store.groups(GroupQuery(states=()))
        await store.merge(str(first.id), str(second.id), who="ann")
        assert (await store.preview(Grouping())).before == 1
