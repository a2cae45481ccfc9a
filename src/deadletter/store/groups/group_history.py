"""What the past of groups tells of their category, written down for lists and filters."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import By, Category, Judgement
from deadletter.core.grouping.category_history import GroupPast, judge
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import counts, groups, letters, tags

JUDGED_AT_ONCE: Final = 10
"""Each is some questions, and whoever brings letters waits for all of them."""
JUDGED_EVERY_MS: Final = 3_600_000
_LOOKED_AT: Final = 200
"""So many of a group's letters tell how often they were tried: the newest."""


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
    for row in rows:
        first = Judgement(category=Category(row.guess), by=By.GUESS, why=row.guess_why)
        found = judge(first, await _history(connection, row), now_ms=now_ms)
        told = {
            "category": found.category.value,
            "category_by": found.by.value,
            "category_why": clean(found.why),
            "judged_ms": now_ms,
        }
        # a person may have said something meanwhile
        mine = groups.c.id == row.id, groups.c.category_by == row.category_by
        await connection.execute(update(groups).where(*mine).values(**told))
    return len(rows)


async def _history(connection: AsyncConnection, row: Any) -> GroupPast:
    of = or_(groups.c.id == row.id, groups.c.merged_into == row.id)
    # their numbers, not how to find them: PostgreSQL would go through whole tables to find them for itself
    members = [int(one) for (one,) in await connection.execute(select(groups.c.id).where(of))]
    bounds = select(func.sum(groups.c.total), func.min(groups.c.first_ms), func.max(groups.c.last_ms))
    total, first_ms, last_ms = (await connection.execute(bounds.where(of, groups.c.total > 0))).one()
    hours = select(func.count(func.distinct(counts.c.minute // 60))).where(
        counts.c.group_id.in_(members), counts.c.letters > 0
    )
    releases = select(func.count(func.distinct(tags.c.value))).where(
        tags.c.group_id.in_(members), tags.c.kind == "release"
    )
    return GroupPast(
        letters=int(total or 0),
        first_ms=int(first_ms or 0),
        last_ms=int(last_ms or 0),
        hours=int(await connection.scalar(hours) or 0),
        tries=await _tries(connection, members),
        releases=int(await connection.scalar(releases) or 0),
        own_code=bool(row.culprit),
    )


async def _tries(connection: AsyncConnection, some: Sequence[int]) -> int:
    """Of the newest letters of these groups. Each group by itself, which its index answers: of several at
    once PostgreSQL may go through all letters there are, the newest first, until it has met enough."""
    newest: list[tuple[int, int]] = []
    for group in some:
        asked = (
            select(letters.c.id, letters.c.attempt)
            .where(letters.c.group_id == group, letters.c.copy_of.is_(None))
            .order_by(letters.c.group_id.desc(), letters.c.id.desc())
            .limit(_LOOKED_AT)
        )
        newest += [(int(number), int(attempt)) for number, attempt in await connection.execute(asked)]
    return sum(attempt for _, attempt in nlargest(_LOOKED_AT, newest))
