"""What other rules would make of the letters that are stored: looked at, nothing is changed.

Of each group the newest letters are grouped anew. So whoever changes a rule sees first which groups would be
one, and which several. What people merged is one group, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.grouping_rules import Grouping
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_tables import groups, letters, names
from deadletter.store.letters.letter_views import GroupingPreview, Joined, Parted

LOOKED_AT: Final = 20
"""So many letters of each group."""
_SHOWN: Final = 50


async def preview(connection: AsyncConnection, grouping: Grouping) -> GroupingPreview:
    root = func.coalesce(groups.c.merged_into, groups.c.id)
    members: dict[int, list[int]] = {}
    titles: dict[int, str] = {}
    for number, into, title in await connection.execute(select(groups.c.id, root, groups.c.title)):
        members.setdefault(int(into), []).append(int(number))
        titles[int(number)] = str(title)
    keys: dict[int, set[str]] = {}
    named: dict[str, str] = {}
    seen = 0
    for into, some in members.items():
        vhosts = await _newest(connection, some)
        seen += len(vhosts)
        for number, letter in (await contents_of(connection, list(vhosts))).items():
            found = stored_letter(letter, now_ms=0, vhost=vhosts[number], grouping=grouping).fingerprint
            keys.setdefault(into, set()).add(found.key)
            named.setdefault(found.key, found.title)
    glued = {into for into, some in members.items() if len(some) > 1}
    return _told(keys, titles, named, seen, glued)


async def _newest(connection: AsyncConnection, some: Sequence[int]) -> dict[int, str]:
    """Letters, each with its vhost."""
    asked = (
        select(letters.c.id, names.c.name)
        .join(names, names.c.id == letters.c.vhost)
        .where(letters.c.group_id.in_(some), letters.c.copy_of.is_(None))
    )
    rows = await connection.execute(asked.order_by(letters.c.id.desc()).limit(LOOKED_AT))
    return {int(number): str(vhost) for number, vhost in rows}


def _told(
    keys: Mapping[int, set[str]],
    titles: Mapping[int, str],
    named: Mapping[str, str],
    seen: int,
    glued: set[int],
) -> GroupingPreview:
    """`glued`: groups whose letters people put together."""
    shown_as: dict[str, str] = {}
    for group in sorted(glued & keys.keys()):
        of = {_shown_as(key, shown_as) for key in keys[group]}
        shown_as.update((key, min(of)) for key in of if key != min(of))
    keys = {group: {_shown_as(key, shown_as) for key in some} for group, some in keys.items()}
    by_key: dict[str, list[int]] = {}
    for group, some in keys.items():
        for key in some:
            by_key.setdefault(key, []).append(group)
    joined = [
        Joined(title=named[key], groups=tuple(sorted(some))) for key, some in by_key.items() if len(some) > 1
    ]
    parted = [
        Parted(group=group, title=titles[group], into=len(some))
        for group, some in keys.items()
        if len(some) > 1
    ]
    return GroupingPreview(
        before=len(keys),
        after=len(by_key),
        letters=seen,
        joined=tuple(sorted(joined, key=lambda one: -len(one.groups))[:_SHOWN]),
        parted=tuple(sorted(parted, key=lambda one: -one.into)[:_SHOWN]),
    )


def _shown_as(key: str, shown_as: Mapping[str, str]) -> str:
    while key in shown_as:
        key = shown_as[key]
    return key
