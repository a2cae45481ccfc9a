"""Groups, listed and found by name, as far as somebody sees them. All within the caller's transaction."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState, state_at
from deadletter.core.letter.header_values import shown
from deadletter.errors import NotAllowed, NotStored
from deadletter.store.finding.within_scope import (
    EVERYTHING,
    MEMBER,
    SeenNames,
    faces_within,
    members_within,
    root_column,
    seen_of,
)
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import RowState, groups, names, tallies
from deadletter.store.letters.letter_views import GroupView

_KEY_CHARS: Final = 32
_NUMBER_CHARS: Final = 16

_vhost = names.alias("vhost_name")
_origin = names.alias("origin_name")
_face = groups.alias("face")
_placed = groups.alias("placed")
_place = names.alias("place_name")


class _Views:
    """How groups are asked for, as far as they are seen. A group stands for those that were merged into it:
    each keeps its own letters and counts, so that it can be taken out again, and those that are seen are
    added up when somebody looks."""

    def __init__(self, seen: SeenNames) -> None:
        self.seen: Final = seen
        opened = (
            select(func.coalesce(func.sum(tallies.c.letters), 0))
            .where(tallies.c.group_id == MEMBER.c.id, tallies.c.state == RowState.OPEN.value)
            .scalar_subquery()
        )
        self.all = faces_within(
            seen,
            func.sum(MEMBER.c.total).label("total"),
            func.min(MEMBER.c.first_ms).label("first_ms"),
            func.max(MEMBER.c.last_ms).label("last_ms"),
            func.sum(opened).label("open"),
        )
        every = (
            select(root_column(MEMBER).label("root"), func.sum(MEMBER.c.total).label("total"))
            .group_by(root_column(MEMBER))
            .subquery("every")
        )
        # the release with which it failed again may be that of a member which is not seen
        again = case((every.c.total == self.all.c.total, groups.c.reopened_release), else_="")
        self.asked = (
            select(
                groups.c.id,
                groups.c.state,
                groups.c.until_ms,
                groups.c.reopened_ms,
                (groups.c.reopened_release if seen.all else again).label("reopened_release"),
                *(_face.c[name] for name in _LENT),
                _origin.c.name.label("origin_text"),
                func.coalesce(_vhost.c.name, "").label("vhost_text"),
                self.all.c.total,
                self.all.c.first_ms,
                self.all.c.last_ms,
                self.all.c.open,
            )
            .select_from(groups)
            .join(self.all, self.all.c.root == groups.c.id)
            .join(_face, _face.c.id == self.all.c.face)
            .join(_origin, _origin.c.id == _face.c.origin)
            .outerjoin(_vhost, _vhost.c.id == _face.c.vhost)
        )
        if not seen.all:
            self.asked = self.asked.join(every, every.c.root == groups.c.id)

    def order(self, by: GroupOrder) -> ColumnElement[Any]:
        match by:
            case GroupOrder.LAST:
                return self.all.c.last_ms.desc()
            case GroupOrder.FIRST:
                return self.all.c.first_ms.desc()
            case GroupOrder.LETTERS:
                return self.all.c.open.desc()


_LENT: Final = ("key", "title", "culprit", "error_type", "category", "category_by", "category_why")
"""What a member tells for all of them."""
_VIEWS: Final = _Views(EVERYTHING)


async def _views(connection: AsyncConnection, scope: Scope) -> _Views:
    return _VIEWS if scope.whole else _Views(await seen_of(connection, scope))


async def listed(connection: AsyncConnection, query: GroupQuery, *, now_ms: int) -> tuple[GroupView, ...]:
    """Groups that have letters, or had."""
    views = await _views(connection, query.scope)
    asked = views.asked.where(*_conditions(query, views.seen, now_ms))
    order = views.order(query.order)
    asked = asked.order_by(order, groups.c.id.desc()).limit(query.limit).offset(query.offset)
    return tuple(_view(row, now_ms) for row in await connection.execute(asked))


def _conditions(query: GroupQuery, seen: SeenNames, now_ms: int) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if query.states:
        conditions.append(or_(*(_in_state(state, now_ms) for state in query.states)))
    if query.vhost is not None:
        there = (
            select(root_column(_placed))
            .join(tallies, tallies.c.group_id == _placed.c.id)
            .join(_place, _place.c.id == tallies.c.vhost)
            .where(_place.c.name == clean(query.vhost), *members_within(_placed, seen))
        )
        conditions.append(groups.c.id.in_(there))
    if query.origin is not None:
        conditions.append(_origin.c.name == clean(query.origin))
    if query.category is not None:
        conditions.append(_face.c.category == query.category.value)
    if query.text:
        for word in query.text.lower().split():
            # nothing is found by what somebody does not see; a title may quote that
            title = _face.c.culprit if query.scope.masks else _face.c.title + " " + _face.c.culprit
            said = func.lower(title + " " + _face.c.error_type)
            # That it is in there, so said that PostgreSQL does not take it for rare: of LIKE it expects next
            # to nothing, and then sums up all groups anew for each that it finds.
            conditions.append(func.replace(said, word, "") != said)
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
        vhost=row.vhost_text,
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
    asked = select(root_column(MEMBER)).distinct().where(*members_within(MEMBER, views.seen))
    if name.isascii() and name.isdigit() and len(name) < _KEY_CHARS:
        number = int(name) if len(name) < _NUMBER_CHARS else None
        called = MEMBER.c.id == number
        if not views.seen.all:  # by its number all find a group who see one of its members
            called = or_(called, MEMBER.c.merged_into == number)
        asked = asked.where(false() if number is None else called)
    else:
        asked = asked.where(MEMBER.c.key.startswith(clean(name), autoescape=True))
    found = (await connection.execute(asked.limit(2))).all() if name else []
    if len(found) != 1:
        raise NotStored(
            f"group {shown(name)}: expected the number of a group, or the beginning of its key; "
            f"{'none is called so' if not found else 'several begin so'} (dlq groups lists them)"
        )
    return _view((await connection.execute(views.asked.where(groups.c.id == found[0][0]))).one(), now_ms)


async def own_group(connection: AsyncConnection, name: str, *, now_ms: int, scope: Scope) -> GroupView:
    """A group that may be changed: all that ever came into it is theirs. NotStored, NotAllowed."""
    found = await group_of(connection, name, now_ms=now_ms, scope=scope)
    if await has_others(connection, found, scope):
        raise NotAllowed(f"group {found.id} has letters of another queue or vhost, too, which are not theirs")
    return found


async def has_others(connection: AsyncConnection, group: GroupView, scope: Scope) -> bool:
    """Whether letters came into a group that are not theirs, as who sees so much is told of it."""
    if scope.whole:
        return False
    of = or_(groups.c.id == group.id, groups.c.merged_into == group.id)
    every = await connection.scalar(select(func.sum(groups.c.total)).where(of))
    return int(every or 0) != group.total
