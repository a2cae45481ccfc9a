"""What groups know of the letters that came: how many, since when, from where. And which opens again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.store.groups.group_rows import GroupsGone
from deadletter.store.letters.letter_rows import (
    COUNTS,
    Bulk,
    TallyPlace,
    add_tallies,
    asked_of,
    clean,
    sqlite_rows,
)
from deadletter.store.letters.letter_tables import RowState, groups

MINUTE_MS: Final = 60_000
_TAG_CHARS: Final = 200
_TAGS_KNOWN: Final = 512


def _tags_in(table: str) -> Bulk:
    return Bulk(
        table=table,
        columns=(
            ("group_id", "bigint"),
            ("kind", "text"),
            ("value", "text"),
            ("letters", "bigint"),
            ("first_ms", "bigint"),
            ("last_ms", "bigint"),
        ),
        then=(
            "ON CONFLICT (group_id, kind, value) DO UPDATE SET "
            f"letters = {table}.letters + excluded.letters, "
            f"first_ms = LEAST({table}.first_ms, excluded.first_ms), "
            f"last_ms = GREATEST({table}.last_ms, excluded.last_ms)"
        ),
    )


TAGS: Final = _tags_in("deadletter_tags")
SEEN: Final = _tags_in("deadletter_regroup_seen")
NEVER_FIRST_MS: Final = 2**63 - 1
NEVER_LAST_MS: Final = -(2**63)
"""Of letters that are taken off: they change neither first nor last."""
_SQLITE_TOTALS: Final = (
    "UPDATE deadletter_groups AS g SET total = g.total + n.column1, "
    "first_ms = min(g.first_ms, n.column2), last_ms = max(g.last_ms, n.column3) FROM (VALUES "
)
_SQLITE_OF: Final = ") AS n WHERE g.id = n.column4"
"""SQLite's names for columns of values."""
_POSTGRES_LOCK: Final = (
    "SELECT id FROM deadletter_groups WHERE id = ANY($1 || ARRAY(SELECT merged_into FROM deadletter_groups "
    "WHERE id = ANY($1) AND merged_into IS NOT NULL)) ORDER BY id FOR NO KEY UPDATE"
)
"""With those that they were merged into, which may open again."""
_POSTGRES_TOTALS: Final = (
    "UPDATE deadletter_groups AS g SET total = g.total + n.letters, "
    "first_ms = LEAST(g.first_ms, n.first_ms), last_ms = GREATEST(g.last_ms, n.last_ms) "
    "FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) "
    "AS n(letters, first_ms, last_ms, id) "
    "WHERE g.id = n.id"
)
_RESOLVED: Final = (
    "SELECT g.id, root.id, root.resolved_ms FROM deadletter_groups AS g "
    "JOIN deadletter_groups AS root ON root.id = coalesce(g.merged_into, g.id) AND root.state = 'resolved'"
)


_OPEN: Final = RowState.OPEN.value


async def count(
    connection: AsyncConnection, came: Sequence[tuple[int, int, int, StoredLetter]], *, now_ms: int
) -> int:
    """`came`: the group, the vhost, the queue and the letter of each that is listed. How many groups are open
    again."""
    if not came:
        return 0
    seen: dict[int, list[tuple[int, str]]] = {}
    """When each died, and of which release."""
    sizes: dict[TallyPlace, list[int]] = {}
    minutes: dict[tuple[int, int], int] = {}
    tagged: dict[tuple[int, str, str], list[int]] = {}
    for group, vhost, queue, letter in came:
        died_ms = letter.died_at_ms
        if (deaths := seen.get(group)) is None:
            deaths = seen[group] = []
        deaths.append((died_ms, letter.release))
        place = (group, vhost, queue, _OPEN)
        if (held := sizes.get(place)) is None:
            held = sizes[place] = []
        held.append(len(letter.letter.message.body))
        minute = (group, died_ms // MINUTE_MS)
        minutes[minute] = minutes.get(minute, 0) + 1
        for tag in tags_of(letter):
            key = (group, *tag)
            if (times := tagged.get(key)) is None:
                times = tagged[key] = []
            times.append(died_ms)
    totals = [(len(deaths), min(deaths)[0], max(deaths)[0], group) for group, deaths in sorted(seen.items())]
    await add_totals(connection, totals)
    reopened = await _reopen(connection, seen, now_ms)
    await add_tallies(
        connection,
        {place: len(held) for place, held in sizes.items()},
        {place: sum(held) for place, held in sizes.items()},
    )
    await COUNTS.put(connection, [(*place, letters) for place, letters in sorted(minutes.items())])
    if tagged:
        rows = [(*tag, len(times), min(times), max(times)) for tag, times in sorted(tagged.items())]
        await TAGS.put(connection, rows)
    return reopened


def tags_of(letter: StoredLetter) -> tuple[tuple[str, str], ...]:
    """What a group tells of its letters beside their number."""
    return _tags(letter.release, letter.host)


@lru_cache(maxsize=_TAGS_KNOWN)
def _tags(release: str, host: str) -> tuple[tuple[str, str], ...]:
    told = ("release", release), ("host", host)
    return tuple((kind, clean(value)[:_TAG_CHARS]) for kind, value in told if value)


async def add_totals(connection: AsyncConnection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Letters more (or fewer), first, last, group: by group. GroupsGone: one of them is not there."""
    some = [group for *_, group in rows]
    if connection.dialect.name != "postgresql":
        if await sqlite_rows(connection, _SQLITE_TOTALS, rows, _SQLITE_OF) != len(rows):
            raise GroupsGone
        return
    # who comes second waits here, in the order of ids, and no two wait for each other
    locked = {int(row[0]) for row in await connection.exec_driver_sql(_POSTGRES_LOCK, (some,))}
    if not locked.issuperset(some):
        raise GroupsGone
    await connection.exec_driver_sql(
        _POSTGRES_TOTALS, tuple(list(column) for column in zip(*rows, strict=True))
    )


async def _reopen(
    connection: AsyncConnection, seen: Mapping[int, Sequence[tuple[int, str]]], now_ms: int
) -> int:
    """A resolved group that fails after it was resolved is open again, and says since which release. A merged
    one opens the one into which it was merged."""
    failed: dict[int, list[tuple[int, str]]] = {}
    for group, number, resolved_ms in await asked_of(connection, _RESOLVED, "g.id", seen):
        later = [one for one in seen[group] if one[0] > (resolved_ms or 0)]
        if later:
            failed.setdefault(int(number), []).extend(later)
    for number, later in sorted(failed.items()):
        await connection.execute(
            update(groups)
            .where(groups.c.id == number)
            .values(state=GroupState.OPEN.value, reopened_ms=now_ms, reopened_release=clean(min(later)[1]))
        )
    return len(failed)
