"""What is known of groups beside what a list shows: notes, releases, hosts, letters by the minute, samples.
Of members that are seen alone. All within the caller's transaction."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.store.finding.searching import find
from deadletter.store.finding.within_scope import MEMBER, SeenNames, members_within, root_column, seen_of
from deadletter.store.groups.group_table import has_others
from deadletter.store.letters.letter_tables import counts, groups, notes, tags
from deadletter.store.letters.letter_views import GroupDetail, GroupNote, GroupTag, GroupView

MINUTES: Final = 24 * 60
"""So far back letters are told by the minute."""
_SAMPLES: Final = 5
_TAGS_SHOWN: Final = 100


async def detail(
    connection: AsyncConnection, group: GroupView, *, now_ms: int, scope: Scope = WHOLE
) -> GroupDetail:
    """All that is known of a group, and of those that were merged into it."""
    seen = await seen_of(connection, scope)
    parts = json.loads(
        await connection.scalar(select(groups.c.parts).where(groups.c.key == group.key)) or "[]"
    )
    some = [number for number, _ in await members_of(connection, [group.id], seen)]
    noted = select(notes).where(notes.c.group_id.in_(some), *_theirs(seen)).order_by(notes.c.id)
    letters_ = func.sum(tags.c.letters)
    tagged = (
        select(
            tags.c.kind, tags.c.value, letters_.label("letters"),
            func.min(tags.c.first_ms).label("first_ms"), func.max(tags.c.last_ms).label("last_ms"),
        )
        .where(tags.c.group_id.in_(some))
        .group_by(tags.c.kind, tags.c.value)
        .order_by(letters_.desc(), tags.c.kind, tags.c.value)
        .limit(_TAGS_SHOWN)
    )  # fmt: skip
    minutes = await minutes_of(connection, [group.id], since_ms=now_ms - MINUTES * 60_000, scope=scope)
    others = groups.c.id.in_(some), groups.c.merged_into.is_not(None), groups.c.key != group.key
    keys = select(groups.c.key).where(*others).order_by(groups.c.id)
    some_letters = LetterQuery(group=group.id, state=None, limit=_SAMPLES, scope=scope)
    page = await find(connection, some_letters, clock=lambda: 0.0)
    return GroupDetail(
        group=group,
        parts=tuple((str(kind), str(said), bool(counts_)) for kind, said, counts_ in parts),
        notes=tuple(
            GroupNote(at_ms=row.at_ms, author=row.author, text=row.text)
            for row in await connection.execute(noted)
        ),
        tags=tuple(
            GroupTag(
                kind=row.kind,
                value=row.value,
                letters=int(row.letters),
                first_ms=row.first_ms,
                last_ms=row.last_ms,
            )
            for row in await connection.execute(tagged)
        ),
        minutes=tuple(sorted(minutes.get(group.id, {}).items())),
        samples=page.letters,
        merged=tuple(str(key) for (key,) in await connection.execute(keys)),
        partly=await has_others(connection, group, scope),
    )


async def minutes_of(
    connection: AsyncConnection, some: list[int], *, since_ms: int, scope: Scope = WHOLE
) -> dict[int, dict[int, int]]:
    """Letters by the minute, of several groups: for the small pictures of a list."""
    roots = dict(await members_of(connection, some, await seen_of(connection, scope)))
    asked = select(counts).where(counts.c.group_id.in_(list(roots)), counts.c.minute >= since_ms // 60_000)
    found: dict[int, Counter[int]] = {}
    for group, minute, letters in await connection.execute(asked):
        found.setdefault(roots[int(group)], Counter())[int(minute)] += int(letters)
    return {group: dict(minutes) for group, minutes in found.items()}


async def hours_of(
    connection: AsyncConnection, some: list[int], *, since_ms: int, scope: Scope = WHOLE
) -> dict[int, dict[int, int]]:
    """Letters by the hour since 1970, of several groups."""
    roots = dict(await members_of(connection, some, await seen_of(connection, scope)))
    hour = (counts.c.minute // 60).label("hour")
    asked = (
        select(counts.c.group_id, hour, func.sum(counts.c.letters))
        .where(counts.c.group_id.in_(list(roots)), counts.c.minute >= since_ms // 60_000)
        .group_by(counts.c.group_id, hour)
    )
    found: dict[int, Counter[int]] = {}
    for group, at, letters in await connection.execute(asked):
        found.setdefault(roots[int(group)], Counter())[int(at)] += int(letters)
    return {group: dict(hours) for group, hours in found.items()}


async def releases_of(
    connection: AsyncConnection, some: list[int], *, scope: Scope = WHOLE
) -> dict[int, str]:
    """The release that letters of each group named last."""
    roots = dict(await members_of(connection, some, await seen_of(connection, scope)))
    asked = (
        select(tags.c.group_id, tags.c.value)
        .where(tags.c.group_id.in_(list(roots)), tags.c.kind == "release")
        .order_by(tags.c.last_ms)
    )
    return {roots[int(group)]: str(value) for group, value in await connection.execute(asked)}


async def last_notes_of(
    connection: AsyncConnection, some: list[int], *, scope: Scope = WHOLE
) -> dict[int, str]:
    """What was noted last of each group, where something was."""
    seen = await seen_of(connection, scope)
    roots = dict(await members_of(connection, some, seen))
    mine = notes.c.group_id.in_(list(roots)), *_theirs(seen)
    newest = select(func.max(notes.c.id)).where(*mine).group_by(notes.c.group_id)
    asked = select(notes.c.group_id, notes.c.text).where(notes.c.id.in_(newest)).order_by(notes.c.id)
    return {roots[int(group)]: str(text) for group, text in await connection.execute(asked)}


async def members_of(connection: AsyncConnection, some: list[int], seen: SeenNames) -> list[tuple[int, int]]:
    """These groups and those that were merged into them, as far as they are seen, each with the group that
    stands for it."""
    of = or_(MEMBER.c.id.in_(some), MEMBER.c.merged_into.in_(some))
    asked = select(MEMBER.c.id, root_column(MEMBER)).where(of, *members_within(MEMBER, seen))
    return [(int(number), int(root)) for number, root in await connection.execute(asked)]


def _theirs(seen: SeenNames) -> list[ColumnElement[bool]]:
    """What was noted of a group that had letters of several vhosts is told to those who see all of them."""
    return [] if seen.vhosts is None else [notes.c.of_several.is_not(True)]
