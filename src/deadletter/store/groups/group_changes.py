"""What people say of groups: their state, their kind, notes; that some are one, or are not. All within the
caller's transaction."""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.letter.header_values import shown
from deadletter.errors import UsageError
from deadletter.store.finding.within_scope import EVERYTHING, MEMBER, members_within, seen_of
from deadletter.store.groups.group_details import members_of
from deadletter.store.groups.group_table import own_group
from deadletter.store.letters.letter_rows import clean, unless_there
from deadletter.store.letters.letter_tables import groups, notes, splits
from deadletter.store.letters.letter_views import GroupView

_NOTE_CHARS: Final = 4_000


async def set_state(
    connection: AsyncConnection, group: GroupView, state: GroupState, *, now_ms: int, until_ms: int | None
) -> None:
    """A person said so. A resolved group opens again when it fails after this moment."""
    if state is GroupState.SNOOZED and (until_ms is None or until_ms <= now_ms):
        raise UsageError("a group sleeps until some time in the future: none was given, or one that is over")
    await connection.execute(
        update(groups)
        .where(groups.c.id == group.id)
        .values(
            state=state.value,
            until_ms=until_ms if state is GroupState.SNOOZED else None,
            resolved_ms=now_ms if state is GroupState.RESOLVED else groups.c.resolved_ms,
        )
    )


async def set_category(
    connection: AsyncConnection, group: GroupView, category: Category, *, who: str
) -> None:
    told = {
        "category": category.value,
        "category_by": By.PERSON.value,
        "category_why": clean(f"{who} says so"),
    }
    await connection.execute(update(groups).where(groups.c.id == group.id).values(**told))


async def add_note(
    connection: AsyncConnection, group: GroupView, text: str, *, author: str, now_ms: int
) -> None:
    if not text.strip():
        raise UsageError("a note says something: this one is empty")
    if len(text) > _NOTE_CHARS:
        raise UsageError(f"a note has at most {_NOTE_CHARS} characters, this one {len(text)}")
    await connection.execute(
        insert(notes).values(group_id=group.id, at_ms=now_ms, author=clean(author), text=clean(text))
    )


async def has_note(connection: AsyncConnection, group: GroupView, text: str) -> bool:
    """Whether somebody noted that; on PostgreSQL nobody else does until we are done."""
    await connection.execute(
        select(groups.c.id).where(groups.c.id == group.id).with_for_update(key_share=True)
    )
    asked = select(notes.c.id).where(notes.c.group_id == group.id, notes.c.text == clean(text)).limit(1)
    return (await connection.execute(asked)).first() is not None


async def merge(connection: AsyncConnection, into: GroupView, other: GroupView) -> None:
    """Letters of both are shown as one group's, those that are here and those that come."""
    if into.id == other.id:
        raise UsageError(f"group {into.id}: expected two groups to merge, got the same twice")
    await connection.execute(
        update(groups)
        .where(or_(groups.c.id == other.id, groups.c.merged_into == other.id))
        .values(merged_into=into.id)
    )
    together = [number for number, _ in await members_of(connection, [into.id], EVERYTHING)]
    await connection.execute(
        delete(splits).where(splits.c.group_id.in_(together), splits.c.other.in_(together))
    )


async def split(connection: AsyncConnection, key: str, *, now_ms: int, scope: Scope = WHOLE) -> None:
    """The group of this key is one of its own again, with all its letters; and they stay apart, also when
    rules would put them together. NotAllowed: not all of the group that it is in is theirs."""
    asked = select(MEMBER.c.id, MEMBER.c.merged_into, MEMBER.c.key).where(
        MEMBER.c.key.startswith(clean(key), autoescape=True),
        MEMBER.c.merged_into.is_not(None),
        *members_within(MEMBER, await seen_of(connection, scope)),
    )
    found = (await connection.execute(asked.limit(2))).all() if key else []
    if len(found) != 1:
        raise UsageError(
            f"key {shown(key)}: expected the key of one group that was merged into another, "
            f"{'several begin so' if found else 'none is so'}"
        )
    number, other, token = found[0]
    await own_group(connection, str(other), now_ms=now_ms, scope=scope)
    await connection.execute(update(groups).where(groups.c.id == number).values(merged_into=None))
    pair = {"group_id": int(number), "other": int(other), "token": str(token)}
    await connection.execute(unless_there(connection, splits, ["group_id", "other"]), [pair])
