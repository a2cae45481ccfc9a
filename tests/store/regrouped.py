"""Whether what a store says of its groups is what its letters say: counted anew, from their bytes."""

from __future__ import annotations

from collections import Counter

from tests.store.grounds import Ground

from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.store.engine import new_engine
from deadletter.store.groups.group_counts import tags_of
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import GroupingTold, RegroupStage
from deadletter.store.store_address import parse


async def regroup(store: LetterStore, grouping: Grouping, who: str = "ann") -> GroupingTold:
    """To the end."""
    while True:
        told = await store.regrouping.go_on(grouping, who=who, for_s=10.0)
        if told.stage is RegroupStage.DONE:
            return told


def _rows(ground: Ground, statement: str) -> list[list[str]]:
    return [line.split("|") for line in ground.sql(statement).splitlines()]


async def check_counts(ground: Ground) -> None:
    """Of a store that has forgotten nothing: totals, first and last, tallies, counts, tags."""
    rows = _rows(
        ground,
        "SELECT id, group_id, vhost, queue, state, bytes, died_ms FROM deadletter_letters "
        "WHERE copy_of IS NULL",
    )
    engine = new_engine(parse(ground.url))
    async with engine.connect() as connection:
        found = await contents_of(connection, [int(row[0]) for row in rows])
    await engine.dispose()
    totals: dict[str, list[int]] = {}
    tallies, size, hours = Counter[str](), Counter[str](), Counter[str]()
    tags: dict[str, list[int]] = {}
    for number, group, vhost, queue, state, length, died in rows:
        place = f"{group}|{vhost}|{queue}|{state}"
        tallies[place] += 1
        size[place] += int(length)
        hours[f"{group}|{int(died) // 3_600_000}"] += 1
        totals.setdefault(group, []).append(int(died))
        for kind, value in tags_of(stored_letter(found[int(number)], now_ms=0)):
            tags.setdefault(f"{group}|{kind}|{value}", []).append(int(died))
    told = _rows(ground, "SELECT id, total, first_ms, last_ms FROM deadletter_groups WHERE total <> 0")
    assert {one[0]: [int(cell) for cell in one[1:]] for one in told} == {
        group: [len(died), min(died), max(died)] for group, died in totals.items()
    }
    told = _rows(
        ground,
        "SELECT group_id, vhost, queue, state, letters, bytes FROM deadletter_tallies WHERE letters <> 0",
    )
    assert {"|".join(one[:4]): (int(one[4]), int(one[5])) for one in told} == {
        place: (tallies[place], size[place]) for place in tallies
    }
    told = _rows(
        ground,
        "SELECT group_id, minute / 60, sum(letters) FROM deadletter_counts GROUP BY group_id, minute / 60",
    )
    assert {f"{group}|{hour}": int(some) for group, hour, some in told} == dict(hours)
    told = _rows(ground, "SELECT group_id, kind, value, letters, first_ms, last_ms FROM deadletter_tags")
    assert {"|".join(one[:3]): [int(cell) for cell in one[3:]] for one in told} == {
        tag: [len(died), min(died), max(died)] for tag, died in tags.items()
    }
    assert ground.sql("SELECT count(*) FROM deadletter_regrouped") == "0"
    lost = "SELECT count(*) FROM deadletter_{} WHERE group_id NOT IN (SELECT id FROM deadletter_groups)"
    for table in ("letters", "notes", "tags", "counts", "tallies", "dictionaries"):
        assert ground.sql(lost.format(table)) == "0", table
