"""The end of grouping anew: first and last made right, what people said settled, empty groups gone.

Everything within the caller's transaction, and in portions; each may be done twice. A portion is small also
where groups are large: whoever brings letters waits for one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import By
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.regrouping import GroupNow, GroupSettling, Settled
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.store.groups.group_counts import (
    MINUTE_MS,
    NEVER_FIRST_MS,
    NEVER_LAST_MS,
    TAGS,
    add_totals,
    tags_of,
)
from deadletter.store.groups.regrouping import ALL, readable
from deadletter.store.letters.letter_rows import COUNTS
from deadletter.store.letters.letter_tables import (
    apart,
    counts,
    dictionaries,
    groups,
    letters,
    notes,
    regrouped,
    seen,
    splits,
    tags,
    tallies,
)

MENDED_AT_ONCE: Final = 5
RETIRED_AT_ONCE: Final = 10
_LATE: Final = 500
"""So many letters that came since are looked at; where there are more, first and last stay as they are."""
_UNREAD: Final = 50
"""So many of them are read while nobody else can write: those that came in the last moment."""
HANDED_OVER: Final = 2_000
"""Counts and tags of so many rows go to heirs at once; those of one group in any case."""
LateTags: TypeAlias = Mapping[int, Sequence[tuple[str, str]]]
"""Of letters that came since grouping anew began."""
_STATE: Final = ("state", "until_ms", "resolved_ms", "reopened_ms", "reopened_release")
_CATEGORY: Final = ("category", "category_by", "category_why")


async def look(connection: AsyncConnection, after: int, last_letter: int) -> LateTags:
    """The letters that came since into the groups that are mended next: read while others may write."""
    found: dict[int, Sequence[tuple[str, str]]] = {}
    for group in await _next_to_mend(connection, after):
        came = await _came(connection, group, last_letter)
        found |= await _tags_of_letters(connection, list(came))
    return found


async def mend(connection: AsyncConnection, after: int, last_letter: int, late: LateTags) -> int | None:
    """The next groups that lost letters and have some; where to go on. None: there are no more. `late`: what
    `look` found."""
    some = await _next_to_mend(connection, after)
    await lock(connection, some)
    for group in some:
        await _mend(connection, group, last_letter, late)
    return some[-1] if some else None


async def _next_to_mend(connection: AsyncConnection, after: int) -> list[int]:
    lost = select(regrouped.c.before).join(groups, groups.c.id == regrouped.c.before)
    asked = lost.where(regrouped.c.before > after, groups.c.total > 0).distinct()
    rows = await connection.execute(asked.order_by(regrouped.c.before).limit(MENDED_AT_ONCE))
    return [int(number) for (number,) in rows]


async def _came(connection: AsyncConnection, group: int, last_letter: int) -> dict[int, int]:
    """Letters that came since, and when they died."""
    asked = select(letters.c.id, letters.c.died_ms).where(
        letters.c.group_id == group, letters.c.id > last_letter, letters.c.copy_of.is_(None)
    )
    return {int(number): int(died) for number, died in await connection.execute(asked.limit(_LATE))}


async def _tags_of_letters(
    connection: AsyncConnection, ids: Sequence[int]
) -> dict[int, Sequence[tuple[str, str]]]:
    found = await readable(connection, ids) if ids else {}
    return await asyncio.to_thread(
        lambda: {number: tuple(tags_of(stored_letter(one, now_ms=0))) for number, one in found.items()}
    )


async def lock(connection: AsyncConnection, some: Sequence[int]) -> None:
    """Who brings letters for these groups waits until we are done. Everybody in the same order."""
    if connection.dialect.name == "postgresql" and some:
        asked = select(groups.c.id).where(groups.c.id.in_(list(some))).order_by(groups.c.id)
        await connection.execute(asked.with_for_update(key_share=True))


async def _mend(connection: AsyncConnection, group: int, last_letter: int, late: LateTags) -> None:
    """Where all that ever came were looked at, or came since, it is known when first and last died."""
    told: dict[tuple[str, str], tuple[int, int, int]] = {
        (row.kind, row.value): (int(row.letters), int(row.first_ms), int(row.last_ms))
        for row in await connection.execute(select(seen).where(seen.c.group_id == group))
    }
    came = await _came(connection, group, last_letter)
    unread = [number for number in came if number not in late]
    known = {**late, **await _tags_of_letters(connection, unread[:_UNREAD])}
    for number, died_ms in came.items():
        for tag in ((ALL, ""), *known[number]) if number in known else ():
            times, first_ms, last_ms = told.get(tag, (0, died_ms, died_ms))
            told[tag] = (times + 1, min(first_ms, died_ms), max(last_ms, died_ms))
    for (kind, value), (times, first_ms, last_ms) in told.items():
        right = {"first_ms": first_ms, "last_ms": last_ms}
        if kind == ALL:
            whole = groups.c.id == group, groups.c.total == times
            done = await connection.execute(update(groups).where(*whole).values(**right))
            if not done.rowcount:
                await _mend_roughly(connection, group, first_ms, last_ms)
        else:
            mine = (
                tags.c.group_id == group,
                tags.c.kind == kind,
                tags.c.value == value,
                tags.c.letters == times,
            )
            await connection.execute(update(tags).where(*mine).values(**right))


async def _mend_roughly(connection: AsyncConnection, group: int, first_ms: int, last_ms: int) -> None:
    """Some of its letters are forgotten: of them only the minute is known, or the hour."""
    bounds = select(func.min(counts.c.minute), func.max(counts.c.minute)).where(counts.c.group_id == group)
    first, last = (await connection.execute(bounds)).one()
    asked = select(groups.c.first_ms, groups.c.last_ms).where(groups.c.id == group)
    was = (await connection.execute(asked)).first()
    if first is None or was is None:
        return
    hour_end_ms = (int(last) + 60) * MINUTE_MS - 1
    right = {
        "first_ms": min(first_ms, max(int(was.first_ms), int(first) * MINUTE_MS)),
        "last_ms": max(last_ms, min(int(was.last_ms), hour_end_ms)),
    }
    await connection.execute(update(groups).where(groups.c.id == group).values(**right))


# -- what people said ------------------------------------------------------------------------------------
async def settle(connection: AsyncConnection) -> Settled:
    """Merges and splits hold, states go along, and each empty group has its heir written down."""
    now, keys = await _groups_now(connection)
    moved = {
        (int(b), int(a)): int(n)
        for b, a, n in await connection.execute(
            select(regrouped.c.before, regrouped.c.after, regrouped.c.letters)
        )
    }
    pairs = {(int(one), int(other)): str(token) for one, other, token in await connection.execute(
        select(splits.c.group_id, splits.c.other, splits.c.token)
    )}  # fmt: skip
    same = await _not_needed_apart(connection, GroupSettling(now, moved), keys, list(pairs))
    settling = GroupSettling(now, moved, split=pairs, same=same)
    settled = settling.settled()
    await lock(connection, sorted({*settled.merged, *settled.said, *settled.said.values()}))
    for to, source in sorted(settled.said.items()):
        await _take_over(connection, source, to)
    for group, root in sorted(settled.merged.items()):
        await connection.execute(update(groups).where(groups.c.id == group).values(merged_into=root))
    tokens = {
        (one, other): token
        for (group, from_), token in pairs.items()
        for one in settling.living(group)
        for other in settling.living(from_)
    }
    await connection.execute(delete(splits))
    if settled.apart:
        rows = [{"group_id": a, "other": b, "token": tokens[a, b]} for a, b in sorted(settled.apart)]
        await connection.execute(insert(splits), rows)
    await connection.execute(delete(regrouped))
    if settled.heirs:
        heirs = [{"before": a, "after": b, "letters": 0} for a, b in sorted(settled.heirs.items())]
        await connection.execute(insert(regrouped), heirs)
    await connection.execute(delete(apart))
    return settled


async def _groups_now(connection: AsyncConnection) -> tuple[dict[int, GroupNow], dict[str, int]]:
    here = {
        int(group): int(some)
        for group, some in await connection.execute(
            select(tallies.c.group_id, func.sum(tallies.c.letters)).group_by(tallies.c.group_id)
        )
    }
    now: dict[int, GroupNow] = {}
    keys: dict[str, int] = {}
    told = ("id", "key", "merged_into", "vhost", "category_by", *_STATE)
    for row in await connection.execute(select(*(groups.c[name] for name in told))):
        keys[row.key] = int(row.id)
        said = (
            row.state != GroupState.OPEN.value
            or row.resolved_ms is not None
            or row.reopened_ms is not None
            or row.category_by == By.PERSON.value
        )
        now[int(row.id)] = GroupNow(
            root=int(row.merged_into or row.id),
            letters=here.get(int(row.id), 0),
            said=said,
            vhost=row.vhost,
        )
    return now, keys


async def _not_needed_apart(
    connection: AsyncConnection,
    settling: GroupSettling,
    keys: dict[str, int],
    pairs: Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:
    """Letters that a person took out were kept apart in groups of their own. Where the others did not come
    into the same group, those are the groups of their keys: as pairs that are one where both are there."""
    same: list[tuple[int, int]] = []
    for group, of, key in (await connection.execute(select(apart.c.group_id, apart.c.of, apart.c.key))).all():
        number = keys.get(key)
        others = {now for one, other in pairs if one == of for now in settling.living(other)}
        if number is None:
            await connection.execute(update(groups).where(groups.c.id == group).values(key=key))
        elif number not in others and number != group:
            same.append((int(number), int(group)))
    return same


async def _take_over(connection: AsyncConnection, source: int, to: int) -> None:
    row = (await connection.execute(select(groups).where(groups.c.id == source))).first()
    if row is None:
        return
    values = {name: getattr(row, name) for name in _STATE}
    if row.category_by == By.PERSON.value:
        values |= {name: getattr(row, name) for name in _CATEGORY}
    await connection.execute(update(groups).where(groups.c.id == to).values(**values))


# -- empty groups ----------------------------------------------------------------------------------------
async def retire(connection: AsyncConnection) -> list[tuple[int, str, int]]:
    """The next groups without letters, with their keys and heirs; empty: there are no more. What is left of
    them goes to the heir. One that a person merged stays, as part of the group it is in: it says that letters
    belong together."""
    asked = select(regrouped.c.before, regrouped.c.after).order_by(regrouped.c.before).limit(RETIRED_AT_ONCE)
    heirs = await _few_rows(connection, {int(one): int(to) for one, to in await connection.execute(asked)})
    if not heirs:
        return []
    await lock(connection, sorted({*heirs, *heirs.values()}))
    rows = {
        int(row.id): row
        for row in await connection.execute(select(groups).where(groups.c.id.in_([*heirs, *heirs.values()])))
    }
    busy = {
        int(group)
        for (group,) in await connection.execute(
            select(letters.c.group_id).where(letters.c.group_id.in_(list(heirs))).distinct()
        )
    }
    ready = {group for group in heirs if group in rows and group not in busy and heirs[group] in rows}
    gone = {group: heir for group, heir in heirs.items() if group in ready}
    if gone:
        parted = await _parted(connection, gone, rows)
        await _hand_over(connection, gone, parted)
        for group, heir in gone.items():
            if rows[group].total > 0 and group not in parted:  # of letters that are forgotten
                await _add_forgotten(connection, group, heir, int(rows[group].total))
        await _empty(connection, gone, rows)
    await connection.execute(delete(regrouped).where(regrouped.c.before.in_(list(heirs))))
    return [(group, str(rows[group].key), heir) for group, heir in gone.items()] or [(0, "", 0)]


async def _few_rows(connection: AsyncConnection, heirs: Mapping[int, int]) -> dict[int, int]:
    """The first of them, with as many rows as may go at once."""
    rows = Counter[int]()
    for table in (counts, tags):
        asked = select(table.c.group_id, func.count()).where(table.c.group_id.in_(list(heirs)))
        for group, some in await connection.execute(asked.group_by(table.c.group_id)):
            rows[int(group)] += int(some)
    few: dict[int, int] = {}
    for group, heir in heirs.items():
        if few and sum(rows[one] for one in (*few, group)) > HANDED_OVER:
            break
        few[group] = heir
    return few


async def _parted(connection: AsyncConnection, gone: Mapping[int, int], rows: Mapping[int, Any]) -> set[int]:
    """Those that had letters of other vhosts than their heir's. Of letters of theirs that are forgotten
    nobody knows the vhost, and what was noted may be about any of them."""
    asked = select(tallies.c.group_id, tallies.c.vhost).where(tallies.c.group_id.in_(list(gone))).distinct()
    return {
        int(group)
        for group, vhost in await connection.execute(asked)
        if rows[gone[int(group)]].vhost not in (None, int(vhost))
    }


async def _hand_over(connection: AsyncConnection, gone: Mapping[int, int], parted: Collection[int]) -> None:
    """Notes, dictionaries, and what is known of letters that are forgotten. Notes of groups that were parted
    by vhost say so from now on; what was counted of their forgotten letters goes with them."""
    some = list(gone)
    await connection.execute(update(notes).where(notes.c.group_id.in_(list(parted))).values(of_several=True))
    for table in (notes, dictionaries):
        heir = select(regrouped.c.after).where(regrouped.c.before == table.c.group_id).scalar_subquery()
        await connection.execute(update(table).where(table.c.group_id.in_(some)).values(group_id=heir))
    some = [group for group in gone if group not in parted]
    minutes = Counter[tuple[int, int]]()
    left = select(counts).where(counts.c.group_id.in_(some))
    for group, minute, letters_ in await connection.execute(left):
        minutes[gone[int(group)], int(minute)] += int(letters_)
    if minutes:
        await COUNTS.put(connection, [(*place, letters_) for place, letters_ in sorted(minutes.items())])
    tagged: dict[tuple[int, str, str], tuple[int, int, int]] = {}
    for row in await connection.execute(select(tags).where(tags.c.group_id.in_(some))):
        tag = (gone[int(row.group_id)], str(row.kind), str(row.value))
        times, first_ms, last_ms = tagged.get(tag, (0, row.first_ms, row.last_ms))
        tagged[tag] = (times + row.letters, min(first_ms, row.first_ms), max(last_ms, row.last_ms))
    if tagged:
        await TAGS.put(connection, [(*tag, *told) for tag, told in sorted(tagged.items())])


async def _add_forgotten(connection: AsyncConnection, group: int, heir: int, total: int) -> None:
    await _mend_roughly(connection, group, NEVER_FIRST_MS, NEVER_LAST_MS)
    bounds = select(groups.c.first_ms, groups.c.last_ms).where(groups.c.id == group)
    first_ms, last_ms = (await connection.execute(bounds)).one()
    await add_totals(connection, [(total, int(first_ms), int(last_ms), heir)])


async def _empty(connection: AsyncConnection, gone: Mapping[int, int], rows: Mapping[int, Any]) -> None:
    for table in (counts, tags, tallies):
        await connection.execute(delete(table).where(table.c.group_id.in_(list(gone))))
    merged = [group for group in gone if rows[group].merged_into is not None]
    for group in merged:
        of = select(groups.c.first_ms, groups.c.last_ms).where(groups.c.id == gone[group])
        first_ms, last_ms = (await connection.execute(of)).one()
        empty = {"total": 0, "first_ms": first_ms, "last_ms": last_ms}
        await connection.execute(update(groups).where(groups.c.id == group).values(**empty))
    alone = [group for group in gone if group not in merged]
    await connection.execute(delete(groups).where(groups.c.id.in_(alone)))


async def clear(connection: AsyncConnection) -> None:
    """What was seen on the way is needed no more."""
    await connection.execute(delete(seen))
