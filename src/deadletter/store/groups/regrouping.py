"""Groups stored letters anew, by the rules in force, in short transactions, and goes on where it was stopped.

The store remembers which grouping is in force: a digest of its rules and of the way fingerprints are made,
since when, and how far stored letters follow it. Letters are looked at in the order of their numbers. What
each portion learned and moved, and how far it came, is one transaction: a crash loses a portion at most.

1. Letters are moved to the groups of their keys; counts, tallies, tags and totals go with each
   (`MOVING`, here).
2. Groups that lost some of their letters get their first and last right (`MENDING`), what people said and
   decided is settled (`SETTLING`), and groups that have no letters left go (`RETIRING`): `regroup_ending`.

Letters that are packed with what their group had in common stay as they are: each names its dictionary.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import By
from deadletter.core.grouping.grouping_rules import Grouping, apart
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter.letter import Letter
from deadletter.store.groups.group_counts import (
    MINUTE_MS,
    NEVER_FIRST_MS,
    NEVER_LAST_MS,
    SEEN,
    TAGS,
    add_totals,
    tags_of,
)
from deadletter.store.groups.group_rows import category_values, ensure_groups
from deadletter.store.letters import letter_tables as tables
from deadletter.store.letters.letter_changes import FORGET_LOCK
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_rows import COUNTS, Bulk, TallyPlace, add_tallies, clean, name_ids
from deadletter.store.letters.letter_tables import groupings, groups, letters, names
from deadletter.store.letters.letter_views import RegroupStage

AT_ONCE: Final = 100
"""So many letters are one transaction."""
ALL: Final = ""
"""The kind of what was seen of a whole group."""
_MOVED: Final = Bulk(
    table="deadletter_regrouped",
    columns=(("before", "bigint"), ("after", "bigint"), ("letters", "bigint")),
    then="ON CONFLICT (before, after) DO UPDATE SET "
    "letters = deadletter_regrouped.letters + excluded.letters",
)
_POSTGRES_MOVE: Final = (
    "UPDATE deadletter_letters AS l SET group_id = n.group_id "
    "FROM unnest($1::bigint[], $2::bigint[]) AS n(group_id, id) WHERE l.id = n.id"
)
_SQLITE_MOVE: Final = "UPDATE deadletter_letters SET group_id = ? WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingNow:
    """The grouping in force, and how far stored letters follow it."""

    id: int
    digest: str
    since_ms: int
    stage: RegroupStage
    reached: int
    """The letter, or the group, after which to go on."""
    last_letter: int
    """The last one that is looked at."""
    looked_at: int
    moved: int
    groups_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """A letter of a portion, and in which group it shall be."""

    id: int
    group: int
    key: str
    """Of the group in which it is."""
    died_ms: int
    listed: bool
    token: str
    """By what a person keeps it apart; empty: nobody does."""
    stored: StoredLetter | None
    """As it is grouped now; None: its bytes cannot be read, and it stays."""

    @property
    def wanted(self) -> str:
        return self.key if self.stored is None else self.stored.fingerprint.key


async def alone(connection: AsyncConnection) -> None:
    """Nobody else groups anew, forgets or folds counts until this transaction is over."""
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_advisory_xact_lock(FORGET_LOCK)))


async def in_force(connection: AsyncConnection) -> GroupingNow | None:
    """None: nobody has grouped letters here yet."""
    row = (await connection.execute(select(groupings).order_by(groupings.c.id.desc()).limit(1))).first()
    if row is None:
        return None
    told = dict(row._mapping)  # noqa: SLF001 -- SQLAlchemy's public name for it
    return GroupingNow(**{**told, "stage": RegroupStage(told["stage"])})


async def put_in_force(connection: AsyncConnection, digest: str, *, now_ms: int) -> GroupingNow:
    """Letters that come are grouped so from now on. Those that are stored follow when somebody says so."""
    await alone(connection)
    now = await in_force(connection)
    if now is not None and now.digest == digest:
        return now
    some = await connection.scalar(select(letters.c.id).limit(1))
    stage = RegroupStage.DONE if some is None else RegroupStage.BEHIND
    made = {
        "digest": digest,
        "since_ms": now_ms,
        "stage": stage.value,
        "reached": 0,
        "last_letter": 0,
        "looked_at": 0,
        "moved": 0,
        "groups_before": 0,
    }
    await connection.execute(insert(groupings).values(**made))
    found = await in_force(connection)
    assert found is not None
    return found


async def begin(connection: AsyncConnection, now: GroupingNow) -> None:
    """From the first letter to the last that is here: those that come are in their groups. What an earlier
    one moved is kept: groups that it left are still to go."""
    await connection.execute(delete(tables.seen))
    shown = await connection.scalar(
        select(func.count()).select_from(groups).where(groups.c.merged_into.is_(None))
    )
    last = await connection.scalar(select(func.max(letters.c.id)))
    await reach(
        connection, now, RegroupStage.MOVING, groups_before=int(shown or 0), last_letter=int(last or 0)
    )


async def reach(
    connection: AsyncConnection, now: GroupingNow, stage: RegroupStage, reached: int = 0, **more: int
) -> None:
    await connection.execute(
        update(groupings).where(groupings.c.id == now.id).values(stage=stage.value, reached=reached, **more)
    )


# -- a portion -------------------------------------------------------------------------------------------
async def look(connection: AsyncConnection, grouping: Grouping, now: GroupingNow) -> list[LookedAt]:
    """The next letters, read and grouped: nothing is changed yet. Empty: there are no more."""
    asked = (
        select(
            letters.c.id,
            letters.c.group_id,
            groups.c.key,
            letters.c.died_ms,
            letters.c.copy_of,
            names.c.name.label("vhost"),
        )
        .outerjoin(groups, groups.c.id == letters.c.group_id)
        .join(names, names.c.id == letters.c.vhost)
        .where(letters.c.id > now.reached, letters.c.id <= now.last_letter)
        .order_by(letters.c.id)
        .limit(AT_ONCE)
    )
    rows = (await connection.execute(asked)).all()
    found = await readable(connection, [row.id for row in rows])
    tokens: dict[int, str] = {
        int(group): str(token)
        for group, token in await connection.execute(select(tables.splits.c.group_id, tables.splits.c.token))
    }
    vhosts = {int(row.id): str(row.vhost) for row in rows}
    read = await asyncio.to_thread(
        lambda: {
            number: stored_letter(one, now_ms=0, vhost=vhosts[number], grouping=grouping)
            for number, one in found.items()
        }
    )
    some: list[LookedAt] = []
    for number, group, key, died_ms, copy_of, _ in rows:
        stored = read.get(number)
        token = tokens.get(group, "")
        if stored is not None:
            stored = stored._replace(died_at_ms=died_ms)
            if token and stored.fingerprint.key != key:
                stored = stored._replace(fingerprint=apart(stored.fingerprint, token))
        some.append(
            LookedAt(
                id=number,
                group=group,
                key=key or "",
                died_ms=died_ms,
                listed=copy_of is None,
                token=token,
                stored=stored,
            )
        )
    return some


async def readable(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Letter]:
    """Those of these letters whose bytes are not damaged."""
    try:
        return await contents_of(connection, ids)
    except ValueError:  # one of them is damaged: which one?
        found: dict[int, Letter] = {}
        for one in ids:
            try:
                found.update(await contents_of(connection, [one]))
            except ValueError:
                continue  # it stays where it is
        return found


async def move(
    connection: AsyncConnection, grouping: Grouping, now: GroupingNow, some: Sequence[LookedAt]
) -> None:
    """One transaction: these letters are in the groups of their keys, and everything is counted there."""
    looked = {one.id: one for one in some}
    there = await _as_they_are(connection, list(looked))
    wanted = {one.wanted: one.stored for one in some if one.stored is not None and one.id in there}
    named = {clean(name) for one in wanted.values() for name in (one.origin, one.vhost)}
    called = await name_ids(connection, sorted(named))
    numbers, _ = await ensure_groups(connection, wanted, lambda name: called[clean(name)])
    going: list[tuple[LookedAt, Any, int]] = []
    staying: list[tuple[int, LookedAt]] = []
    for number, row in there.items():
        one = looked[number]
        to = numbers.get(one.wanted, row.group_id)
        if row.group_id == one.group and to != one.group:
            going.append((one, row, to))
        if one.listed:
            staying.append((to if row.group_id == one.group else row.group_id, one))
    if going:
        await _move_rows(connection, [(to, one.id) for one, _, to in going])
        await _recount(connection, [(one, row, to) for one, row, to in going if one.listed])
        await _keep_apart(connection, grouping, going)
    await _see(connection, staying)
    await _rule(connection, staying)
    await reach(
        connection,
        now,
        RegroupStage.MOVING,
        some[-1].id,
        looked_at=now.looked_at + sum(one.listed for one in some),
        moved=now.moved + sum(one.listed for one, _, _ in going),
    )


async def _as_they_are(connection: AsyncConnection, ids: list[int]) -> dict[int, Any]:
    """Somebody may have forgotten or discarded some meanwhile. Until we are done nobody does."""
    columns = (
        letters.c.id,
        letters.c.group_id,
        letters.c.vhost,
        letters.c.queue,
        letters.c.state,
        letters.c.bytes,
    )
    asked = select(*columns).where(letters.c.id.in_(ids)).order_by(letters.c.id)
    if connection.dialect.name == "postgresql":
        asked = asked.with_for_update(key_share=True)
    return {int(row.id): row for row in await connection.execute(asked)}


async def _move_rows(connection: AsyncConnection, rows: Sequence[tuple[int, int]]) -> None:
    if connection.dialect.name == "postgresql":
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        await connection.exec_driver_sql(_POSTGRES_MOVE, columns)
    else:
        await connection.exec_driver_sql(_SQLITE_MOVE, list(rows))


async def _recount(connection: AsyncConnection, going: Sequence[tuple[LookedAt, Any, int]]) -> None:
    if not going:
        return
    tally, size = Counter[TallyPlace](), Counter[TallyPlace]()
    ways = Counter[tuple[int, int]]()
    totals: dict[int, tuple[int, int, int]] = {}
    tagged: dict[tuple[int, str, str], tuple[int, int, int]] = {}
    for one, row, to in going:
        assert one.stored is not None
        ways[one.group, to] += 1
        for group, sign in ((one.group, -1), (to, 1)):
            place = (group, row.vhost, row.queue, row.state)
            tally[place] += sign
            size[place] += sign * row.bytes
            first_ms = one.died_ms if sign > 0 else NEVER_FIRST_MS
            last_ms = one.died_ms if sign > 0 else NEVER_LAST_MS
            _add(totals, group, sign, first_ms, last_ms)
            for kind, value in tags_of(one.stored):
                _add(tagged, (group, kind, value), sign, first_ms, last_ms)
    await add_totals(connection, [(*told, group) for group, told in sorted(totals.items())])
    await add_tallies(connection, tally, size)
    await _move_counts(connection, [(one.group, to, one.died_ms // MINUTE_MS) for one, _, to in going])
    if tagged:
        await TAGS.put(connection, [(*tag, *told) for tag, told in sorted(tagged.items())])
    before = sorted({one.group for one, _, _ in going})
    for table in (tables.tags, tables.counts):
        await connection.execute(delete(table).where(table.c.group_id.in_(before), table.c.letters <= 0))
    await _MOVED.put(connection, [(*way, moved) for way, moved in sorted(ways.items())])


def _add(told: dict[Any, tuple[int, int, int]], key: object, sign: int, first_ms: int, last_ms: int) -> None:
    letters_, first, last = told.get(key, (0, NEVER_FIRST_MS, NEVER_LAST_MS))
    told[key] = (letters_ + sign, min(first, first_ms), max(last, last_ms))


async def _move_counts(connection: AsyncConnection, going: Iterable[tuple[int, int, int]]) -> None:
    """A letter is counted in the minute in which it died, or, where that is long ago, in its hour."""
    ways = list(going)
    minutes = sorted({at for _, _, minute in ways for at in (minute, minute - minute % 60)})
    counts = tables.counts
    asked = select(counts).where(
        counts.c.group_id.in_(sorted({before for before, _, _ in ways})), counts.c.minute.in_(minutes)
    )
    have = {(int(g), int(m)): int(n) for g, m, n in await connection.execute(asked)}
    changed = Counter[tuple[int, int]]()
    for before, after, minute in ways:
        at = next((at for at in (minute, minute - minute % 60) if have.get((before, at), 0) > 0), None)
        if at is not None:
            have[before, at] -= 1
            changed[before, at] -= 1
        changed[after, minute if at is None else at] += 1
    rows = [(*place, letters_) for place, letters_ in sorted(changed.items()) if letters_]
    if rows:
        await COUNTS.put(connection, rows)


async def _keep_apart(
    connection: AsyncConnection, grouping: Grouping, going: Sequence[tuple[LookedAt, Any, int]]
) -> None:
    """Write down which groups are there only because a person took letters out of another."""
    rows = {
        to: {"group_id": to, "of": one.group, "key": natural_key(one.stored, grouping)}
        for one, _, to in going
        if one.token and one.stored is not None
    }
    if rows:
        await connection.execute(delete(tables.apart).where(tables.apart.c.group_id.in_(list(rows))))
        await connection.execute(insert(tables.apart), list(rows.values()))


def natural_key(stored: StoredLetter, grouping: Grouping) -> str:
    """The key that it has by the rules alone."""
    return stored_letter(stored.letter, now_ms=0, vhost=stored.vhost, grouping=grouping).fingerprint.key


async def _see(connection: AsyncConnection, staying: Sequence[tuple[int, LookedAt]]) -> None:
    """First and last of what is in each group now: for those that lose letters."""
    told: dict[tuple[int, str, str], tuple[int, int, int]] = {}
    for group, one in staying:
        _add(told, (group, ALL, ""), 1, one.died_ms, one.died_ms)
        for kind, value in tags_of(one.stored) if one.stored is not None else ():
            _add(told, (group, kind, value), 1, one.died_ms, one.died_ms)
    if told:
        await SEEN.put(connection, [(*tag, *seen) for tag, seen in sorted(told.items())])


async def _rule(connection: AsyncConnection, staying: Sequence[tuple[int, LookedAt]]) -> None:
    """Groups have the category that a rule gives them, and no longer one that no rule gives. A person's word
    stays."""
    known = {
        int(number): (by, category)
        for number, by, category in await connection.execute(
            select(groups.c.id, groups.c.category_by, groups.c.category).where(
                groups.c.id.in_(sorted({group for group, _ in staying}))
            )
        )
    }
    said: dict[int, Mapping[str, str]] = {}
    for group, one in staying:
        if one.stored is None or group in said or group not in known:
            continue
        by, category = known[group]
        ruled = one.stored.fingerprint.ruled
        if by != By.PERSON and (ruled != category if ruled else by == By.RULE):
            said[group] = category_values(one.stored)
    for group, values in sorted(said.items()):
        await connection.execute(update(groups).where(groups.c.id == group).values(**values))
