"""Letters thrown away, taken back and forgotten. All within the caller's transaction.

A discarded letter stays, whole, until its time is over; until then it can be taken back. What is forgotten is
gone: by age, by number, by size, the oldest first, in small portions, so that nobody waits long for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BindParameter, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import WORDING, searched_text
from deadletter.store.finding import word_index
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, COUNTS, TallyPlace, add_tallies, clean
from deadletter.store.letters.letter_tables import (
    IS_DISCARDED,
    RowState,
    audit,
    contents,
    counts,
    letters,
    names,
    steps,
    tallies,
)

FORGET_LOCK: Final = 0x6465_6164_6C65_7403
"""One of PostgreSQL's advisory locks, beside those of `event_table` and `preparing`."""
FORGET_AT_ONCE: Final = 100
HOURS_AFTER_MIN: Final = 2 * 24 * 60
"""Counts older than this many minutes are kept by the hour."""


async def change_state(
    connection: AsyncConnection,
    ids: Sequence[int],
    *,
    before: RowState,
    after: RowState,
    step: str,
    who: str,
    why: str,
    now_ms: int,
) -> int:
    """Those of these letters that are in one state come into another; how many they were."""
    changed = 0
    tally, size = Counter[TallyPlace](), Counter[TallyPlace]()
    some = letters.c.id.in_(bindparam("some", expanding=True))
    for start in range(0, len(ids), ASKED_AT_ONCE):
        asked = {"some": sorted(ids)[start : start + ASKED_AT_ONCE]}
        if connection.dialect.name == "postgresql":  # everybody in the same order
            locked = select(letters.c.id).where(some).order_by(letters.c.id).with_for_update()
            await connection.execute(locked, asked)
        moved = (
            update(letters)
            .where(some, letters.c.state == before.value, letters.c.copy_of.is_(None))
            .values(state=after.value, changed_ms=now_ms)
            .returning(letters.c.id, letters.c.group_id, letters.c.vhost, letters.c.queue, letters.c.bytes)
        )
        rows = (await connection.execute(moved, asked)).all()
        if not rows:
            continue
        gone = [row.id for row in rows]
        await connection.execute(
            update(letters)
            .where(letters.c.copy_of.in_(bindparam("some", expanding=True)))
            .values(state=after.value, changed_ms=now_ms),
            {"some": gone},
        )
        await connection.execute(
            insert(steps),
            [
                {"letter": number, "at_ms": now_ms, "step": step, "who": clean(who), "why": clean(why)}
                for number in gone
            ],
        )
        for _, group, vhost, queue, length in rows:
            for state, sign in ((before, -1), (after, 1)):
                tally[group, vhost, queue, state.value] += sign
                size[group, vhost, queue, state.value] += sign * length
        changed += len(rows)
    if tally:
        await add_tallies(connection, tally, size)
    return changed


async def noted(connection: AsyncConnection, *, who: str, action: str, detail: str, now_ms: int) -> None:
    """Who did what, for the audit."""
    await connection.execute(
        insert(audit).values(at_ms=now_ms, who=clean(who), action=action, detail=clean(detail))
    )


async def forget_some(
    connection: AsyncConnection, vhost: str, queue: str, retention: Retention, *, now_ms: int
) -> int:
    """The next portion of letters of this queue whose time is over; 0: there are no more."""
    if not await _alone(connection):
        return 0
    asked = select(names.c.name, names.c.id).where(names.c.name.in_([clean(vhost), clean(queue)]))
    called = {str(name): int(number) for name, number in await connection.execute(asked)}
    if clean(vhost) not in called or clean(queue) not in called:
        return 0
    over = await _over(connection, called[clean(vhost)], called[clean(queue)], retention, now_ms)
    if over:
        await _forget(connection, over)
    return len(over)


async def _alone(connection: AsyncConnection) -> bool:
    """Whether nobody else forgets at this moment: two would take the same letters off the counts twice."""
    if connection.dialect.name != "postgresql":
        return True  # who writes to the file is alone
    return bool(await connection.scalar(select(func.pg_try_advisory_xact_lock(FORGET_LOCK))))


async def _over(
    connection: AsyncConnection, vhost: int, queue: int, retention: Retention, now_ms: int
) -> list[int]:
    mine = letters.c.vhost == vhost, letters.c.queue == queue, letters.c.copy_of.is_(None)
    if retention.age_ms is not None:
        # Ids and times of coming go up together, so the first that may stay is followed by none that must go.
        asked = select(letters.c.id, letters.c.stored_ms).where(*mine).order_by(letters.c.id)
        rows = (await connection.execute(asked.limit(FORGET_AT_ONCE))).all()
        until_ms = now_ms - retention.age_ms
        if found := [int(one) for one, stored_ms in rows if stored_ms < until_ms]:
            return found
    discarded = select(letters.c.id).where(
        *mine, letters.c.state == IS_DISCARDED, letters.c.changed_ms < now_ms - retention.discarded_ms
    )
    oldest_first = discarded.order_by(letters.c.changed_ms).limit(FORGET_AT_ONCE)
    if found := [int(one) for (one,) in await connection.execute(oldest_first)]:
        return found
    if retention.letters is None and retention.bytes is None:
        return []
    total = select(func.coalesce(func.sum(tallies.c.letters), 0), func.coalesce(func.sum(tallies.c.bytes), 0))
    here, size = (
        await connection.execute(total.where(tallies.c.vhost == vhost, tallies.c.queue == queue))
    ).one()
    too_many = max(0, here - retention.letters) if retention.letters is not None else 0
    too_big = size - retention.bytes if retention.bytes is not None else 0
    if not too_many and too_big <= 0:
        return []
    oldest = select(letters.c.id, letters.c.bytes).where(*mine).order_by(letters.c.id).limit(FORGET_AT_ONCE)
    over: list[int] = []
    for one, length in await connection.execute(oldest):
        if len(over) >= too_many and too_big <= 0:
            break
        over.append(int(one))
        too_big -= length
    return over


async def _forget(connection: AsyncConnection, ids: Sequence[int]) -> None:
    """With their copies, and out of the index of words. Rows count as they were when they went: somebody may
    have discarded one meanwhile."""
    asked = {"some": list(ids)}
    some: BindParameter[Any] = bindparam("some", expanding=True)
    had = list((await contents_of(connection, ids)).items()) if _is_sqlite(connection) else []
    columns = (
        letters.c.id,
        letters.c.group_id,
        letters.c.vhost,
        letters.c.queue,
        letters.c.state,
        letters.c.bytes,
        letters.c.cause,
    )
    rows = (
        await connection.execute(delete(letters).where(letters.c.id.in_(some)).returning(*columns), asked)
    ).all()
    # only now: who stores a copy holds its first one until it is committed
    copies = select(letters.c.id, letters.c.cause).where(letters.c.copy_of.in_(some))
    further = (await connection.execute(copies, asked)).all()
    if further:
        also = [int(one) for one, _ in further]
        had += (await contents_of(connection, also)).items() if _is_sqlite(connection) else []
        await connection.execute(delete(letters).where(letters.c.id.in_(some)), {"some": also})
    causes = {int(row.id): int(row.cause) for row in (*rows, *further)}
    gone = {"some": list(causes)}
    tally, size = Counter[TallyPlace](), Counter[TallyPlace]()
    for _, group, vhost, queue, state, length, _ in rows:
        tally[group, vhost, queue, state] -= 1
        size[group, vhost, queue, state] -= length
    worded = delete(contents).where(contents.c.id.in_(some)).returning(contents.c.id, contents.c.wording)
    ours = {int(one) for one, wording in await connection.execute(worded, gone) if wording == WORDING}
    if _is_sqlite(connection):
        told = [(one, searched_text(letter), causes[one]) for one, letter in had if one in ours]
    else:
        told = [(one, "", 0) for one in causes]
    await word_index.remove(connection, told)
    await connection.execute(delete(steps).where(steps.c.letter.in_(some)), gone)
    if tally:
        await add_tallies(connection, tally, size)


def _is_sqlite(connection: AsyncConnection) -> bool:
    return connection.dialect.name == "sqlite"


async def fold_counts(connection: AsyncConnection, *, now_ms: int) -> int:
    """Counts by the minute that are older than two days become counts by the hour."""
    if not await _alone(connection):
        return 0
    before = now_ms // 60_000 - HOURS_AFTER_MIN
    old = select(counts).where(counts.c.minute < before, counts.c.minute % 60 != 0).limit(1_000)
    rows = (await connection.execute(old)).all()
    by_hour = Counter[tuple[int, int]]()
    for group, minute, count in rows:
        by_hour[group, minute - minute % 60] += count
        await connection.execute(delete(counts).where(counts.c.group_id == group, counts.c.minute == minute))
    if by_hour:
        await COUNTS.put(connection, [(*place, letters_) for place, letters_ in sorted(by_hour.items())])
    return len(rows)
