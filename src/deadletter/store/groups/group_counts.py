"""What groups know of the letters that came: how many, since when, from where. And which opens again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.store.groups.group_rows import GroupsGone
from deadletter.store.letters.letter_rows import (
    COUNTS,
    Bulk,
    Put,
    TallyPlace,
    clean,
    put_together,
    some_of,
    sqlite_rows,
    tallied,
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
_GROUPS_NOW: Final = {
    "postgresql": "SELECT id, merged_into, state, resolved_ms FROM deadletter_groups "
    "WHERE id = ANY(CAST(string_to_array(:some, ',') AS bigint[]) || ARRAY(SELECT merged_into "
    "FROM deadletter_groups WHERE id = ANY(CAST(string_to_array(:some, ',') AS bigint[])) "
    "AND merged_into IS NOT NULL)) ORDER BY id FOR NO KEY UPDATE",
    "sqlite": "WITH mine AS (SELECT value AS id FROM json_each(:some)) "
    "SELECT id, merged_into, state, resolved_ms FROM deadletter_groups WHERE id IN "
    "(SELECT id FROM mine UNION SELECT merged_into FROM deadletter_groups WHERE id IN (SELECT id FROM mine))",
}
"""With those that they were merged into, which may open again."""
_POSTGRES_TOTALS: Final = (
    "UPDATE deadletter_groups AS g SET total = g.total + n.letters, "
    "first_ms = LEAST(g.first_ms, n.first_ms), last_ms = GREATEST(g.last_ms, n.last_ms) "
    "FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) "
    "AS n(letters, first_ms, last_ms, id) "
    "WHERE g.id = n.id"
)
_OPEN: Final = RowState.OPEN.value


class _GroupNow(NamedTuple):
    """A group as it is in this transaction."""

    merged_into: int | None
    state: str
    resolved_ms: int | None


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
    groups_now = await _held(connection, sorted(seen))
    totals = [(len(deaths), min(deaths)[0], max(deaths)[0], group) for group, deaths in sorted(seen.items())]
    await _put_totals(connection, totals)
    reopened = await _reopen(connection, groups_now, seen, now_ms)
    await put_together(
        connection,
        tallied(
            {place: len(held) for place, held in sizes.items()},
            {place: sum(held) for place, held in sizes.items()},
        ),
        Put(COUNTS, [(*place, letters) for place, letters in sorted(minutes.items())]),
        Put(TAGS, [(*tag, len(times), min(times), max(times)) for tag, times in sorted(tagged.items())]),
    )
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
    await _held(connection, [group for *_, group in rows])
    await _put_totals(connection, rows)


async def _held(connection: AsyncConnection, some: Sequence[int]) -> dict[int, _GroupNow]:
    """These groups, and those that they were merged into. On PostgreSQL who comes second waits here, in the
    order of ids, and no two wait for each other. GroupsGone: one of them is not there."""
    found: dict[int, _GroupNow] = {}
    missing = set(some)
    while missing:  # again where somebody merged one of them while we waited
        told = {"some": some_of(connection, sorted(missing))}
        rows = await connection.execute(text(_GROUPS_NOW[connection.dialect.name]), told)
        found |= {int(number): _GroupNow(*now) for number, *now in rows}
        if not found.keys() >= missing:
            raise GroupsGone
        missing = {one.merged_into for one in found.values() if one.merged_into is not None} - found.keys()
    return found


async def _put_totals(connection: AsyncConnection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql(
            _POSTGRES_TOTALS, tuple(list(column) for column in zip(*rows, strict=True))
        )
    else:
        await sqlite_rows(connection, _SQLITE_TOTALS, rows, _SQLITE_OF)


async def _reopen(
    connection: AsyncConnection,
    groups_now: Mapping[int, _GroupNow],
    seen: Mapping[int, Sequence[tuple[int, str]]],
    now_ms: int,
) -> int:
    """A resolved group that fails after it was resolved is open again, and says since which release. A merged
    one opens the one into which it was merged."""
    failed: dict[int, list[tuple[int, str]]] = {}
    for group, deaths in seen.items():
        number = groups_now[group].merged_into or group
        root = groups_now.get(number)
        if root is None or root.state != GroupState.RESOLVED.value:
            continue
        if later := [one for one in deaths if one[0] > (root.resolved_ms or 0)]:
            failed.setdefault(number, []).extend(later)
    for number, later in sorted(failed.items()):
        await connection.execute(
            update(groups)
            .where(groups.c.id == number)
            .values(state=GroupState.OPEN.value, reopened_ms=now_ms, reopened_release=clean(min(later)[1]))
        )
    return len(failed)
