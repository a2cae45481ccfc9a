"""Letters thrown away, taken back and forgotten. All within the caller's transaction.

A discarded letter stays, whole, until its time is over; until then it can be taken back. What is forgotten is
gone: by age, by number, by size, the oldest first, in small portions, so that nobody waits long for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import BindParameter, bindparam, delete, func, insert, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import WORDING, searched_text
from deadletter.store.finding import word_index
from deadletter.store.letters import state_changes
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_rows import COUNTS, TallyPlace, add_tallies, among, clean, some_of
from deadletter.store.letters.letter_tables import (
    NOT_CLAIMED,
    RowState,
    audit,
    contents,
    counts,
    letters,
    names,
    steps,
    tallies,
)
from deadletter.store.replays.replay_tables import drafts

FORGET_LOCK: Final = 0x6465_6164_6C65_7403
"""One of PostgreSQL's advisory locks, beside those of `event_table` and `preparing`."""
FORGET_AT_ONCE: Final = 50
"""Who brings letters to SQLite waits for so many at most."""
HOURS_AFTER_MIN: Final = 2 * 24 * 60
"""Counts older than this many minutes are kept by the hour."""


AUDITED: Final = {"letter": "letter", "group_id": "group", "replay": "replay"}
"""Columns of the audit, and what they are called in its detail."""
Change: TypeAlias = tuple[Sequence[int], RowState, RowState]
"""Letters, the state they must be in, and the state they come into."""


_IN_PLACES: Final = "group_id, vhost, queue, count(*), sum(bytes)"


async def change_rows(
    connection: AsyncConnection, changes: Sequence[Change], *, now_ms: int
) -> list[list[int]]:
    """Of each change those letters that really were in that state, and are in the other one now. Their copies
    go with them. Once in a transaction."""
    if len(changes) == 1 and RowState.DISCARDED not in changes[0][1:]:
        return [await state_changes.changed(connection, *changes[0])]
    told = sorted({number for ids, _, _ in changes for number in ids})
    # On PostgreSQL everybody in the same order; and nobody waits who only has to know that a letter is there.
    # By their numbers alone: a database that is asked for more may look at all letters to find these.
    asked = (
        select(letters.c.id, letters.c.state, letters.c.copy_of)
        .where(text(among(connection, "id")))
        .order_by(letters.c.id)
        .with_for_update(key_share=True)
    )
    rows = (await connection.execute(asked, {"some": some_of(connection, told)})).all()
    here = {number: state for number, state, copy_of in rows if copy_of is None}
    tally, size = Counter[TallyPlace](), Counter[TallyPlace]()
    done: list[list[int]] = []
    for ids, before, after in changes:
        was = before.value
        gone = [number for number in sorted(ids) if here.get(number) == was]
        done.append(gone)
        if not gone:
            continue
        for group, vhost, queue, letters_, length in await _put(connection, gone, before, after, now_ms):
            for state, sign in ((before, -1), (after, 1)):
                tally[group, vhost, queue, state.value] += sign * letters_
                size[group, vhost, queue, state.value] += sign * length
    if tally:
        await add_tallies(connection, tally, size)
    return done


async def _put(
    connection: AsyncConnection, some: Sequence[int], before: RowState, after: RowState, now_ms: int
) -> Sequence[Any]:
    """These letters, which we hold, and their copies come into this state. How many and how large they are
    by group, vhost and queue: counted by the database, as there may be thousands."""
    asked: dict[str, Any] = {"some": some_of(connection, some), "state": after.value}
    sets = "state = :state"
    if RowState.DISCARDED in (before, after):
        sets += ", discarded_ms = :discarded_ms"
        asked["discarded_ms"] = now_ms if after is RowState.DISCARDED else None
    change = f"UPDATE deadletter_letters SET {sets} WHERE "  # noqa: S608 -- names of ours
    mine = among(connection, "id")
    if _is_sqlite(connection):
        counted = f"SELECT {_IN_PLACES} FROM deadletter_letters WHERE {mine} GROUP BY 1, 2, 3"  # noqa: S608
        places = (await connection.execute(text(counted), {"some": asked["some"]})).all()
        await connection.execute(text(change + mine), asked)
    else:
        returned = f"{change}{mine} RETURNING group_id, vhost, queue, bytes"
        counted = f"WITH changed AS ({returned}) SELECT {_IN_PLACES} FROM changed GROUP BY 1, 2, 3"  # noqa: S608
        places = (await connection.execute(text(counted), asked)).all()
    await connection.execute(text(change + among(connection, "copy_of")), asked)
    return places


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
    """Those of these letters that are in one state come into another by a person; how many they were."""
    (gone,) = await change_rows(connection, [(ids, before, after)], now_ms=now_ms)
    if gone:
        told = {"at_ms": now_ms, "step": step, "who": clean(who), "why": clean(why)}
        await connection.execute(insert(steps), [{"letter": number, **told} for number in gone])
    return len(gone)


async def noted(connection: AsyncConnection, *, who: str, action: str, detail: str, now_ms: int) -> None:
    """Who did what, for the audit. `detail` is JSON; whom it is about is found by that, too."""
    told = json.loads(detail)
    about = {name: told.get(key) for name, key in AUDITED.items()}
    values = {name: number if isinstance(number, int) else None for name, number in about.items()}
    await connection.execute(
        insert(audit).values(at_ms=now_ms, who=clean(who), action=action, detail=clean(detail), **values)
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
    return await _forget(connection, over) if over else 0


async def _alone(connection: AsyncConnection) -> bool:
    """Whether nobody else forgets at this moment: two would take the same letters off the counts twice."""
    if connection.dialect.name != "postgresql":
        return True  # who writes to the file is alone
    return bool(await connection.scalar(select(func.pg_try_advisory_xact_lock(FORGET_LOCK))))


async def _over(
    connection: AsyncConnection, vhost: int, queue: int, retention: Retention, now_ms: int
) -> list[int]:
    mine = letters.c.vhost == vhost, letters.c.queue == queue, letters.c.copy_of.is_(None), NOT_CLAIMED
    if retention.age_ms is not None:
        # Ids and times of coming go up together, so the first that may stay is followed by none that must go.
        asked = select(letters.c.id, letters.c.stored_ms).where(*mine).order_by(letters.c.id)
        rows = (await connection.execute(asked.limit(FORGET_AT_ONCE))).all()
        until_ms = now_ms - retention.age_ms
        if found := [int(one) for one, stored_ms in rows if stored_ms < until_ms]:
            return found
    discarded = select(letters.c.id).where(*mine, letters.c.discarded_ms < now_ms - retention.discarded_ms)
    oldest_first = discarded.order_by(letters.c.discarded_ms).limit(FORGET_AT_ONCE)
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


async def _forget(connection: AsyncConnection, ids: Sequence[int]) -> int:
    """With their copies, and out of the index of words. Rows count as they were when they went: somebody may
    have discarded one meanwhile. One that a replay has claimed meanwhile stays."""
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
    unclaimed = delete(letters).where(letters.c.id.in_(some), NOT_CLAIMED).returning(*columns)
    rows = (await connection.execute(unclaimed, asked)).all()
    # only now: who stores a copy holds its first one until it is committed
    copies = select(letters.c.id, letters.c.cause).where(letters.c.copy_of.in_(some))
    further = (await connection.execute(copies, {"some": [row.id for row in rows]})).all()
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
    await connection.execute(delete(drafts).where(drafts.c.letter.in_(some)), gone)
    if tally:
        await add_tallies(connection, tally, size)
    return len(rows)


def _is_sqlite(connection: AsyncConnection) -> bool:
    return connection.dialect.name == "sqlite"


async def fold_counts(connection: AsyncConnection, *, now_ms: int) -> int:
    """Counts by the minute that are older than two days become counts by the hour."""
    if not await _alone(connection):
        return 0
    before = now_ms // 60_000 - HOURS_AFTER_MIN
    place = counts.c.group_id, counts.c.minute
    old = select(*place).where(counts.c.minute < before, counts.c.minute % 60 != 0).limit(1_000)
    folded = delete(counts).where(tuple_(*place).in_(old)).returning(*counts.c)
    rows = (await connection.execute(folded)).all()
    by_hour = Counter[tuple[int, int]]()
    for group, minute, count in rows:
        by_hour[group, minute - minute % 60] += count
    if by_hour:
        await COUNTS.put(connection, [(*hour, letters_) for hour, letters_ in sorted(by_hour.items())])
    return len(rows)
