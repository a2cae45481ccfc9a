"""What the past of groups tells of their category, written down for lists and filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select, tuple_, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import By, Category, Judgement
from deadletter.core.grouping.category_history import GroupPast, judge
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import counts, groups, letters, tags

JUDGED_AT_ONCE: Final = 10
"""Whoever brings letters waits for all of them."""
JUDGED_EVERY_MS: Final = 3_600_000
_LOOKED_AT: Final = 200
"""So many of a group's letters tell how often they were tried: the newest."""
_LOOKED_INTO: Final = 50
"""So many groups' letters are asked for at once."""
_ROOT: Final = func.coalesce(groups.c.merged_into, groups.c.id)
_BIGGEST: Final = 2**63 - 1
_WRITTEN: Final = (
    update(groups)
    # a person may have said something meanwhile
    .where(groups.c.id == bindparam("judged"), groups.c.category_by == bindparam("was_by"))
    .values(
        category=bindparam("now_category"),
        category_by=bindparam("now_by"),
        category_why=bindparam("now_why"),
        judged_ms=bindparam("now_ms"),
    )
)


async def judge_some(connection: AsyncConnection, *, now_ms: int) -> int:
    """The next groups that nobody has judged for a while; 0: there are no more. What a person or a rule says
    is left alone. A group that others were merged into is judged by all of them."""
    asked = (
        select(groups)
        .where(
            groups.c.category_by.in_([By.GUESS.value, By.HISTORY.value]),
            groups.c.merged_into.is_(None),
            or_(groups.c.judged_ms.is_(None), groups.c.judged_ms <= now_ms - JUDGED_EVERY_MS),
        )
        .order_by(groups.c.id)
        .limit(JUDGED_AT_ONCE)
    )
    rows = (await connection.execute(asked)).all()
    if not rows:
        return 0
    pasts = await _pasts(connection, rows)
    told: list[dict[str, object]] = []
    for row in rows:
        first = Judgement(category=Category(row.guess), by=By.GUESS, why=row.guess_why)
        found = judge(first, pasts[row.id], now_ms=now_ms)
        told.append(
            {
                "judged": row.id,
                "was_by": row.category_by,
                "now_category": found.category.value,
                "now_by": found.by.value,
                "now_why": clean(found.why),
                "now_ms": now_ms,
            }
        )
    await connection.execute(_WRITTEN, told)
    return len(rows)


async def _pasts(connection: AsyncConnection, rows: Sequence[Any]) -> dict[int, GroupPast]:
    """By group. Few questions for all of them: each is waited for by whoever brings letters."""
    some = [int(row.id) for row in rows]
    of = or_(groups.c.id.in_(some), groups.c.merged_into.in_(some))
    # their numbers, not how to find them: PostgreSQL would go through whole tables to find them for itself
    found = await connection.execute(select(groups.c.id, _ROOT).where(of))
    roots = {int(member): int(root) for member, root in found}
    totals = select(_ROOT, func.sum(groups.c.total), func.min(groups.c.first_ms), func.max(groups.c.last_ms))
    told = await connection.execute(totals.where(of, groups.c.total > 0).group_by(_ROOT))
    bounds = {int(root): (int(total), int(first), int(last)) for root, total, first, last in told}
    hours = await _each(
        connection,
        select(counts.c.group_id, counts.c.minute // 60).where(
            counts.c.group_id.in_(roots), counts.c.letters > 0
        ),
        roots,
    )
    releases = await _each(
        connection,
        select(tags.c.group_id, tags.c.value).where(tags.c.group_id.in_(roots), tags.c.kind == "release"),
        roots,
    )
    tries = await _tries(connection, roots)
    pasts: dict[int, GroupPast] = {}
    for row in rows:
        total, first_ms, last_ms = bounds.get(row.id, (0, 0, 0))
        pasts[row.id] = GroupPast(
            letters=total,
            first_ms=first_ms,
            last_ms=last_ms,
            hours=len(hours.get(row.id, ())),
            tries=tries.get(row.id, 0),
            releases=len(releases.get(row.id, ())),
            own_code=bool(row.culprit),
        )
    return pasts


async def _each(
    connection: AsyncConnection, asked: Select[tuple[int, Any]], roots: dict[int, int]
) -> dict[int, set[Any]]:
    """What differs, by group."""
    found: dict[int, set[Any]] = {}
    for group, one in await connection.execute(asked.distinct()):
        found.setdefault(roots[group], set()).add(one)
    return found


async def _tries(connection: AsyncConnection, roots: dict[int, int]) -> dict[int, int]:
    """Of the newest letters of each group."""
    newest: dict[int, list[tuple[int, int]]] = {}
    some = sorted(roots)
    for start in range(0, len(some), _LOOKED_INTO):
        each = [_newest(group).subquery() for group in some[start : start + _LOOKED_INTO]]
        asked = union_all(*(select(one) for one in each))
        for group, number, attempt in await connection.execute(asked):
            newest.setdefault(roots[group], []).append((number, attempt))
    return {root: _sum(nlargest(_LOOKED_AT, found)) for root, found in newest.items()}


def _sum(some: Iterable[tuple[int, int]]) -> int:
    return sum(attempt for _, attempt in some)


def _newest(group: int) -> Select[tuple[int, int, int]]:
    """Between two bounds, and not where the group is that: then nothing but the index of groups has this
    order. PostgreSQL would go through all letters there are, the newest first, until it has met enough; or
    through all that are no copies, for which it has an index, while it knows too little of the table."""
    place: ColumnElement[Any] = tuple_(letters.c.group_id, letters.c.id)
    return (
        select(letters.c.group_id, letters.c.id, letters.c.attempt)
        .where(place >= (group, 0), place <= (group, _BIGGEST), func.coalesce(letters.c.copy_of, 0) == 0)
        .order_by(letters.c.group_id.desc(), letters.c.id.desc())
        .limit(_LOOKED_AT)
    )
