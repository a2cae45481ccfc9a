"""What groups know of the letters that came: how many, since when, from where. And which opens again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    "SELECT id FROM deadletter_groups WHERE id = ANY($1) OR id IN "
    "(SELECT merged_into FROM deadletter_groups WHERE id = ANY($1)) ORDER BY id FOR NO KEY UPDATE"
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


@dataclass(slots=True)
class _Seen:
    letters: int = 0
    first_ms: int = NEVER_FIRST_MS
    last_ms: int = NEVER_LAST_MS
    newest: list[tuple[int, str]] = field(default_factory=list)
    """When each died, and of which release."""


async def count(
    connection: AsyncConnection, came: Sequence[tuple[int, int, int, StoredLetter]], *, now_ms: int
) -> int:
    """`came`: the group, the vhost, the queue and the letter of each that is listed. How many groups are open
    again."""
    if not came:
        return 0
    seen: dict[int, _Seen] = {}
    tally, size = Counter[TallyPlace](), Counter[TallyPlace]()
    minutes = Counter[tuple[int, int]]()
    tagged: dict[tuple[int, str, str], tuple[int, int, int]] = {}
    for group, vhost, queue, letter in came:
        died_ms = letter.died_at_ms
        one = seen.get(group)
        if one is None:
            one = seen[group] = _Seen()
        one.letters += 1
        one.first_ms = min(one.first_ms, died_ms)
        one.last_ms = max(one.last_ms, died_ms)
        one.newest.append((died_ms, letter.release))
        place = (group, vhost, queue, RowState.OPEN.value)
        tally[place] += 1
        size[place] += len(letter.letter.body)
        minutes[group, died_ms // MINUTE_MS] += 1
        for kind, value in tags_of(letter):
            tag = (group, kind, value)
            letters, first_ms, last_ms = tagged.get(tag, (0, died_ms, died_ms))
            tagged[tag] = (letters + 1, min(first_ms, died_ms), max(last_ms, died_ms))
    await add_totals(
        connection, [(one.letters, one.first_ms, one.last_ms, group) for group, one in sorted(seen.items())]
    )
    reopened = await _reopen(connection, seen, now_ms)
    await add_tallies(connection, tally, size)
    await COUNTS.put(connection, [(*place, letters) for place, letters in sorted(minutes.items())])
    if tagged:
        await TAGS.put(connection, [(*tag, *told) for tag, told in sorted(tagged.items())])
    return reopened


def tags_of(letter: StoredLetter) -> list[tuple[str, str]]:
    """What a group tells of its letters beside their number."""
    told = ("release", letter.release), ("host", letter.host)
    return [(kind, _tag(value)) for kind, value in told if value]


@lru_cache(maxsize=_TAGS_KNOWN)
def _tag(value: str) -> str:
    return clean(value)[:_TAG_CHARS]


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


async def _reopen(connection: AsyncConnection, seen: Mapping[int, _Seen], now_ms: int) -> int:
    """A resolved group that fails after it was resolved is open again, and says since which release. A merged
    one opens the one into which it was merged."""
    failed: dict[int, list[tuple[int, str]]] = {}
    for group, number, resolved_ms in await asked_of(connection, _RESOLVED, "g.id", seen):
        later = [one for one in seen[group].newest if one[0] > (resolved_ms or 0)]
        if later:
            failed.setdefault(int(number), []).extend(later)
    for number, later in sorted(failed.items()):
        await connection.execute(
            update(groups)
            .where(groups.c.id == number)
            .values(state=GroupState.OPEN.value, reopened_ms=now_ms, reopened_release=clean(min(later)[1]))
        )
    return len(failed)
