"""Letters thrown away, taken back and forgotten. All within the caller's transaction.

A discarded letter stays, whole, until its time is over; until then it can be taken back. What is forgotten is
gone: by age, by number, by size, the oldest first, in small portions, so that nobody waits long for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.stored_letter import searched_text
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, add_tallies, adding, clean
from deadletter.store.letters.letter_tables import (
    Kept,
    audit,
    contents,
    counts,
    letters,
    names,
    steps,
    tallies,
)
from deadletter.store.letters.searching import contents_of

FORGET_AT_ONCE: Final = 100
HOURS_AFTER_MIN: Final = 2 * 24 * 60
"""Counts older than this many minutes are kept by the hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long letters stay. None: for ever."""

    age_ms: int | None = None
    letters: int | None = None
    bytes: int | None = None
    discarded_ms: int = 7 * 24 * 3_600_000
    """How long a discarded one can be taken back."""


async def change_state(
    connection: AsyncConnection,
    ids: Sequence[int],
    *,
    before: Kept,
    after: Kept,
    step: str,
    who: str,
    why: str,
    now_ms: int,
) -> int:
    """Those of these letters that are in one state come into another; how many they were."""
    changed = 0
    asked = select(letters.c.id, letters.c.group_id, letters.c.queue, letters.c.bytes).where(
        letters.c.id.in_(bindparam("some", expanding=True)),
        letters.c.state == before.value,
        letters.c.copy_of.is_(None),  # a copy goes where its letter goes
    )
    if connection.dialect.name == "postgresql":
        asked = asked.with_for_update()
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = (await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})).all()
        if not rows:
            continue
        some = [row.id for row in rows]
        await connection.execute(
            update(letters)
            .where(letters.c.id.in_(some) | letters.c.copy_of.in_(some))
            .values(state=after.value, changed_ms=now_ms)
        )
        await connection.execute(
            insert(steps),
            [
                {"letter": number, "at_ms": now_ms, "step": step, "who": clean(who), "why": clean(why)}
                for number in some
            ],
        )
        tally, size = Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
        for _, group, queue, length in rows:
            for state, sign in ((before, -1), (after, 1)):
                tally[group, queue, state.value] += sign
                size[group, queue, state.value] += sign * length
        await add_tallies(connection, tally, size)
        changed += len(rows)
    return changed


async def noted(connection: AsyncConnection, *, who: str, action: str, detail: str, now_ms: int) -> None:
    """Who did what, for the audit."""
    await connection.execute(
        insert(audit).values(at_ms=now_ms, who=clean(who), action=action, detail=clean(detail))
    )


async def forget_some(connection: AsyncConnection, queue: str, retention: Retention, *, now_ms: int) -> int:
    """The next portion of letters of this queue whose time is over; 0: there are no more."""
    number = await connection.scalar(select(names.c.id).where(names.c.name == clean(queue)))
    if number is None:
        return 0
    over = await _over(connection, int(number), retention, now_ms)
    if over:
        await _forget(connection, over)
    return len(over)


async def _over(connection: AsyncConnection, queue: int, retention: Retention, now_ms: int) -> list[int]:
    mine = letters.c.queue == queue
    oldest = select(letters.c.id).where(mine).order_by(letters.c.id)
    if retention.age_ms is not None:
        # The oldest in the store, then: whoever came last may have died first, and leaves with the next ones.
        asked = oldest.where(letters.c.stored_ms < now_ms - retention.age_ms).limit(FORGET_AT_ONCE)
        if found := [int(one) for (one,) in await connection.execute(asked)]:
            return found
    asked = oldest.where(
        letters.c.state == Kept.DISCARDED.value, letters.c.changed_ms < now_ms - retention.discarded_ms
    ).limit(FORGET_AT_ONCE)
    if found := [int(one) for (one,) in await connection.execute(asked)]:
        return found
    if retention.letters is None and retention.bytes is None:
        return []
    total = select(func.coalesce(func.sum(tallies.c.letters), 0), func.coalesce(func.sum(tallies.c.bytes), 0))
    here, size = (await connection.execute(total.where(tallies.c.queue == queue))).one()
    too_many = max(0, here - retention.letters) if retention.letters is not None else 0
    some = (
        await connection.execute(
            select(letters.c.id, letters.c.bytes).where(mine).order_by(letters.c.id).limit(FORGET_AT_ONCE)
        )
    ).all()
    over: list[int] = []
    too_big = size - retention.bytes if retention.bytes is not None else 0
    for one, length in some:
        if len(over) >= too_many and too_big <= 0:
            break
        over.append(int(one))
        too_big -= length
    return over


async def _forget(connection: AsyncConnection, ids: Sequence[int]) -> None:
    """With their copies, and out of the index of words, which has to be told what it had."""
    copies = select(letters.c.id).where(letters.c.copy_of.in_(list(ids)))
    gone = list({*ids, *(int(one) for (one,) in await connection.execute(copies))})
    if connection.dialect.name != "postgresql":
        found = await contents_of(connection, gone)
        await connection.execute(
            text(
                "INSERT INTO deadletter_words (deadletter_words, rowid, words) VALUES ('delete', :id, :words)"
            ),
            [{"id": one, "words": clean(searched_text(letter))} for one, letter in found.items()],
        )
    tallied = select(
        letters.c.group_id, letters.c.queue, letters.c.state, func.count(), func.sum(letters.c.bytes)
    ).where(letters.c.id.in_(gone), letters.c.copy_of.is_(None))
    tally, size = Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
    for group, queue, state, count, length in await connection.execute(
        tallied.group_by(letters.c.group_id, letters.c.queue, letters.c.state)
    ):
        tally[group, queue, state] -= int(count)
        size[group, queue, state] -= int(length)
    for rows in (letters, contents):
        await connection.execute(delete(rows).where(rows.c.id.in_(gone)))
    await connection.execute(delete(steps).where(steps.c.letter.in_(gone)))
    if tally:
        await add_tallies(connection, tally, size)


async def fold_counts(connection: AsyncConnection, *, now_ms: int) -> int:
    """Counts by the minute that are older than two days become counts by the hour."""
    before = now_ms // 60_000 - HOURS_AFTER_MIN
    old = select(counts).where(counts.c.minute < before, counts.c.minute % 60 != 0).limit(1_000)
    rows = (await connection.execute(old)).all()
    by_hour = Counter[tuple[int, int]]()
    for group, minute, count in rows:
        by_hour[group, minute - minute % 60] += count
        await connection.execute(delete(counts).where(counts.c.group_id == group, counts.c.minute == minute))
    if by_hour:
        await connection.execute(
            adding(connection, counts, ["group_id", "minute"], ["letters"]),
            [{"group_id": g, "minute": m, "letters": n} for (g, m), n in sorted(by_hour.items())],
        )
    return len(rows)
