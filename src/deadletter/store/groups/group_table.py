"""Groups: listed, told in detail, and changed by people. All within the caller's transaction."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, false, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState, state_at
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.header_values import shown
from deadletter.errors import NotStored, UsageError
from deadletter.store.finding.searching import find
from deadletter.store.finding.within_scope import SeenNames, has_letters_there, seen_of
from deadletter.store.letters.letter_rows import clean, unless_there
from deadletter.store.letters.letter_tables import (
    RowState,
    counts,
    groups,
    names,
    notes,
    splits,
    tags,
    tallies,
)
from deadletter.store.letters.letter_views import GroupDetail, GroupNote, GroupTag, GroupView

MINUTES: Final = 24 * 60
"""So far back letters are told by the minute."""
_SAMPLES: Final = 5
_TAGS_SHOWN: Final = 100
_KEY_CHARS: Final = 32
_NUMBER_CHARS: Final = 16
_NOTE_CHARS: Final = 4_000


_origin = names.alias("origin_name")
_member = groups.alias("member")
_ROOT: Final = func.coalesce(_member.c.merged_into, _member.c.id)
"""A group stands for those that were merged into it: each keeps its own letters and counts, so that it can be
taken out again, and they are added up when somebody looks."""
_EVERYTHING: Final = SeenNames(vhosts=None, origins=None)


class _Views:
    """How groups are asked for, as far as they are seen: of those that were merged, and of their letters."""

    def __init__(self, seen: SeenNames) -> None:
        there = [] if seen.vhosts is None else [tallies.c.vhost.in_(seen.vhosts)]
        held = select(func.coalesce(func.sum(tallies.c.letters), 0)).where(
            tallies.c.group_id == _member.c.id, *there
        )
        opened = held.where(tallies.c.state == RowState.OPEN.value).scalar_subquery()
        # of one vhost nobody counts what ever came, only what is here
        total = _member.c.total if seen.vhosts is None else held.scalar_subquery()
        mine = [] if seen.origins is None else [_member.c.origin.in_(seen.origins)]
        self.all = (
            select(
                _ROOT.label("root"),
                func.sum(total).label("total"),
                func.min(_member.c.first_ms).label("first_ms"),
                func.max(_member.c.last_ms).label("last_ms"),
                func.sum(opened).label("open"),
            )
            .where(*mine, *has_letters_there(_member.c.id, seen))
            .group_by(_ROOT)
            .subquery("members")
        )
        self.asked = (
            select(*_SHOWN, self.all.c.total, self.all.c.first_ms, self.all.c.last_ms, self.all.c.open)
            .select_from(groups)
            .join(self.all, self.all.c.root == groups.c.id)
            .join(_origin, _origin.c.id == groups.c.origin)
        )

    def order(self, by: GroupOrder) -> ColumnElement[Any]:
        match by:
            case GroupOrder.LAST:
                return self.all.c.last_ms.desc()
            case GroupOrder.FIRST:
                return self.all.c.first_ms.desc()
            case GroupOrder.LETTERS:
                return self.all.c.open.desc()


_SHOWN: Final = (
    groups.c.id,
    groups.c.key,
    groups.c.title,
    groups.c.culprit,
    groups.c.error_type,
    groups.c.category,
    groups.c.category_by,
    groups.c.category_why,
    groups.c.state,
    groups.c.until_ms,
    groups.c.reopened_ms,
    groups.c.reopened_release,
    _origin.c.name.label("origin_text"),
)
_VIEWS: Final = _Views(_EVERYTHING)


async def _views(connection: AsyncConnection, scope: Scope) -> _Views:
    return _VIEWS if scope.whole else _Views(await seen_of(connection, scope))


async def listed(connection: AsyncConnection, query: GroupQuery, *, now_ms: int) -> tuple[GroupView, ...]:
    """Groups that have letters, or had."""
    views = await _views(connection, query.scope)
    asked = views.asked.where(*_conditions(query, now_ms))
    order = views.order(query.order)
    asked = asked.order_by(order, groups.c.id.desc()).limit(query.limit).offset(query.offset)
    return tuple(_view(row, now_ms) for row in await connection.execute(asked))


def _conditions(query: GroupQuery, now_ms: int) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if query.states:
        conditions.append(or_(*(_in_state(state, now_ms) for state in query.states)))
    if query.origin is not None:
        conditions.append(_origin.c.name == clean(query.origin))
    if query.category is not None:
        conditions.append(groups.c.category == query.category.value)
    if query.text:
        for word in query.text.lower().split():
            # nothing is found by what somebody does not see; a title may quote that
            title = groups.c.culprit if query.scope.masks else groups.c.title + " " + groups.c.culprit
            said = func.lower(title + " " + groups.c.error_type)
            conditions.append(said.contains(word, autoescape=True))
    return conditions


def _in_state(state: GroupState, now_ms: int) -> ColumnElement[bool]:
    asleep = and_(groups.c.state == GroupState.SNOOZED.value, groups.c.until_ms > now_ms)
    match state:
        case GroupState.SNOOZED:
            return asleep
        case GroupState.OPEN:
            awake = and_(groups.c.state == GroupState.SNOOZED.value, groups.c.until_ms <= now_ms)
            return or_(groups.c.state == GroupState.OPEN.value, awake)
        case GroupState.RESOLVED | GroupState.MUTED:
            return groups.c.state == state.value


def _view(row: Any, now_ms: int) -> GroupView:
    return GroupView(
        id=row.id,
        key=row.key,
        origin=row.origin_text,
        title=row.title,
        culprit=row.culprit,
        error_type=row.error_type,
        category=Category(row.category),
        category_by=By(row.category_by),
        category_why=row.category_why,
        state=state_at(GroupState(row.state), row.until_ms, now_ms),
        until_ms=row.until_ms,
        first_ms=row.first_ms,
        last_ms=row.last_ms,
        total=int(row.total),
        open=int(row.open),
        reopened_ms=row.reopened_ms,
        reopened_release=row.reopened_release or "",
    )


async def group_of(connection: AsyncConnection, name: str, *, now_ms: int, scope: Scope = WHOLE) -> GroupView:
    """The group of this number, or of a key that begins so; of one that was merged into another that one.
    NotStored where that is none that may be seen, or several."""
    views = await _views(connection, scope)
    asked = select(_ROOT).distinct()
    if not scope.whole:
        asked = asked.join(views.all, views.all.c.root == _ROOT)
    if name.isascii() and name.isdigit() and len(name) < _KEY_CHARS:
        asked = asked.where(_member.c.id == int(name)) if len(name) < _NUMBER_CHARS else asked.where(false())
    else:
        asked = asked.where(_member.c.key.startswith(clean(name), autoescape=True))
    found = (await connection.execute(asked.limit(2))).all() if name else []
    if len(found) != 1:
        raise NotStored(
            f"group {shown(name)}: expected the number of a group, or the beginning of its key; "
            f"{'none is called so' if not found else 'several begin so'} (dlq groups lists them)"
        )
    return _view((await connection.execute(views.asked.where(groups.c.id == found[0][0]))).one(), now_ms)


async def detail(
    connection: AsyncConnection, group: GroupView, *, now_ms: int, scope: Scope = WHOLE
) -> GroupDetail:
    """All that is known of a group, and of those that were merged into it."""
    parts = json.loads(await connection.scalar(select(groups.c.parts).where(groups.c.id == group.id)) or "[]")
    members = await _members(connection, [group.id])
    some = [number for number, _ in members]
    noted = select(notes).where(notes.c.group_id.in_(some)).order_by(notes.c.id)
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
    minutes = await minutes_of(connection, [group.id], since_ms=now_ms - MINUTES * 60_000)
    keys = select(groups.c.key).where(groups.c.merged_into == group.id).order_by(groups.c.id)
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
    )


async def minutes_of(
    connection: AsyncConnection, some: list[int], *, since_ms: int
) -> dict[int, dict[int, int]]:
    """Letters by the minute, of several groups: for the small pictures of a list."""
    roots = dict(await _members(connection, some))
    asked = select(counts).where(counts.c.group_id.in_(list(roots)), counts.c.minute >= since_ms // 60_000)
    found: dict[int, Counter[int]] = {}
    for group, minute, letters in await connection.execute(asked):
        found.setdefault(roots[int(group)], Counter())[int(minute)] += int(letters)
    return {group: dict(minutes) for group, minutes in found.items()}


async def hours_of(
    connection: AsyncConnection, some: list[int], *, since_ms: int
) -> dict[int, dict[int, int]]:
    """Letters by the hour since 1970, of several groups."""
    roots = dict(await _members(connection, some))
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


async def releases_of(connection: AsyncConnection, some: list[int]) -> dict[int, str]:
    """The release that letters of each group named last."""
    roots = dict(await _members(connection, some))
    asked = (
        select(tags.c.group_id, tags.c.value)
        .where(tags.c.group_id.in_(list(roots)), tags.c.kind == "release")
        .order_by(tags.c.last_ms)
    )
    return {roots[int(group)]: str(value) for group, value in await connection.execute(asked)}


async def last_notes_of(connection: AsyncConnection, some: list[int]) -> dict[int, str]:
    """What was noted last of each group, where something was."""
    roots = dict(await _members(connection, some))
    newest = select(func.max(notes.c.id)).where(notes.c.group_id.in_(list(roots))).group_by(notes.c.group_id)
    asked = select(notes.c.group_id, notes.c.text).where(notes.c.id.in_(newest)).order_by(notes.c.id)
    return {roots[int(group)]: str(text) for group, text in await connection.execute(asked)}


async def _members(connection: AsyncConnection, some: list[int]) -> list[tuple[int, int]]:
    """These groups and those that were merged into them, each with the group that stands for it."""
    asked = select(_member.c.id, _ROOT).where(or_(_member.c.id.in_(some), _member.c.merged_into.in_(some)))
    return [(int(number), int(root)) for number, root in await connection.execute(asked)]


# -- what people change ----------------------------------------------------------------------------------
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
    together = [number for number, _ in await _members(connection, [into.id])]
    await connection.execute(
        delete(splits).where(splits.c.group_id.in_(together), splits.c.other.in_(together))
    )


async def split(connection: AsyncConnection, key: str) -> None:
    """The group of this key is one of its own again, with all its letters; and they stay apart, also when
    rules would put them together."""
    asked = select(groups.c.id, groups.c.merged_into, groups.c.key).where(
        groups.c.key.startswith(clean(key), autoescape=True), groups.c.merged_into.is_not(None)
    )
    found = (await connection.execute(asked.limit(2))).all() if key else []
    if len(found) != 1:
        raise UsageError(
            f"key {shown(key)}: expected the key of one group that was merged into another, "
            f"{'several begin so' if found else 'none is so'}"
        )
    number, other, token = found[0]
    await connection.execute(update(groups).where(groups.c.id == number).values(merged_into=None))
    pair = {"group_id": int(number), "other": int(other), "token": str(token)}
    await connection.execute(unless_there(connection, splits, ["group_id", "other"]), [pair])
