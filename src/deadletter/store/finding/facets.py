"""How found letters divide: by queue, origin, cause, group and category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.store.finding.letter_list import ROW_STATES
from deadletter.store.finding.searching import SearchPlan, Where, looked_through, plan_of, root_of
from deadletter.store.finding.within_scope import SeenNames, faces_within, seen_of, tallies_within
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, asked_of, clean
from deadletter.store.letters.letter_tables import groups, names, tallies
from deadletter.store.letters.letter_views import Facet, Facets

FACETS_MAX: Final = 10_000
"""Beyond that many, facets count the newest."""
FACETS_S: Final = 2.0
"""And as many as can be found in this time."""
_SHOWN: Final = 50
_PLACES: Final = "SELECT vhost, queue, cause, group_id, count(*) FROM deadletter_letters"
_EACH_PLACE: Final = "GROUP BY vhost, queue, cause, group_id"
_PORTION: Final = FACETS_MAX // 2 + 1
"""Two of them are more than are counted, and tell so."""
_OF_A_GROUP: Final = frozenset({"group", "category"})
_face = groups.alias("face")
_vhost = names.alias("vhost_name")
_queue = names.alias("queue_name")
_origin = names.alias("origin_name")
_ROOT: Final = func.coalesce(groups.c.merged_into, groups.c.id)
_GROUP: Final = (
    _origin.c.name.label("origin"),
    _ROOT.label("group"),
    _face.c.title.label("title"),
    _face.c.category.label("category"),
)


def _with_groups(asked: Select[Any], seen: SeenNames) -> Select[Any]:
    """With the origin of each group, and what it is shown as: the group itself, or one that lends it its
    title. Where letters are theirs in a group that is not, nothing is told of that."""
    asked = asked.join(_origin, _origin.c.id == groups.c.origin)
    if seen.all:
        return asked.join(_face, _face.c.id == _ROOT)
    faces = faces_within(seen)
    return asked.outerjoin(faces, faces.c.root == _ROOT).outerjoin(_face, _face.c.id == faces.c.face)


async def facets(
    connection: AsyncConnection,
    query: LetterQuery,
    *,
    where: Where | None = None,
    clock: Callable[[], float],
) -> Facets:
    """How many. By queue, origin, group and state the counts are kept with every change; anything else is
    counted, up to FACETS_MAX of the newest, and for so long."""
    if query.asks_for_places:
        return await _tallied(connection, query)
    plan = await plan_of(connection, query)
    if plan is None:
        return Facets(by={}, exact=True, total=0)
    newest = replace(query, order=LetterOrder.NEWEST, after=None)
    return await _counted(connection, newest, plan, where, clock)


async def _tallied(connection: AsyncConnection, query: LetterQuery) -> Facets:
    conditions: list[ColumnElement[bool]] = [tallies.c.letters > 0]
    if query.state is not None:
        conditions.append(tallies.c.state == ROW_STATES[query.state].value)
    if query.vhost is not None:
        conditions.append(_vhost.c.name == clean(query.vhost))
    if query.queue is not None:
        conditions.append(_queue.c.name == clean(query.queue))
    if query.origin is not None:
        conditions.append(_origin.c.name == clean(query.origin))
    if query.group is not None:
        conditions.append(root_of(query.group) == _ROOT)
    seen = await seen_of(connection, query.scope)
    conditions += tallies_within(seen)
    asked = (
        select(
            _vhost.c.name.label("vhost"),
            _queue.c.name.label("queue"),
            *_GROUP,
            func.sum(tallies.c.letters).label("letters"),
        )
        .select_from(tallies)
        .join(groups, groups.c.id == tallies.c.group_id)
        .join(_vhost, _vhost.c.id == tallies.c.vhost)
        .join(_queue, _queue.c.id == tallies.c.queue)
        .where(*conditions)
        .group_by(_vhost.c.name, _queue.c.name, _origin.c.name, _ROOT, _face.c.title, _face.c.category)
    )
    rows = (await connection.execute(_with_groups(asked, seen))).mappings().all()
    return _divided(rows, ("queue", "origin", "group", "category"), exact=True)


async def _counted(
    connection: AsyncConnection,
    query: LetterQuery,
    plan: SearchPlan,
    where: Where | None,
    clock: Callable[[], float],
) -> Facets:
    found: list[int] = []
    more: int | None = None
    looked_at = 0
    until = clock() + FACETS_S
    async for some in looked_through(connection, query, plan, size=_PORTION, where=where):
        found += some.ids
        looked_at += some.looked_at
        more = some.more
        if len(found) > FACETS_MAX or clock() >= until:
            break
    exact = more is None and len(found) <= FACETS_MAX
    places = await asked_of(connection, _PLACES, "id", found[:FACETS_MAX], then=_EACH_PLACE)
    times = {(int(v), int(q), int(c), int(g)): int(letters_) for v, q, c, g, letters_ in places}
    called = await _called(connection, sorted({one for place in times for one in place[:3]}))
    seen = await seen_of(connection, query.scope)
    members = await _members(connection, sorted({group for *_, group in times}), seen)
    rows = [
        {
            **members[group],
            "vhost": called[vhost],
            "queue": called[queue],
            "cause": called[cause],
            "letters": letters_,
        }
        for (vhost, queue, cause, group), letters_ in times.items()
    ]
    told = _divided(rows, ("queue", "origin", "cause", "group", "category"), exact=exact)
    return replace(told, looked_at=looked_at)


async def _called(connection: AsyncConnection, some: Sequence[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for start in range(0, len(some), ASKED_AT_ONCE):
        asked = select(names).where(names.c.id.in_(some[start : start + ASKED_AT_ONCE]))
        found.update((int(number), str(name)) for number, name in await connection.execute(asked))
    return found


async def _members(
    connection: AsyncConnection, some: Sequence[int], seen: SeenNames
) -> dict[int, dict[str, Any]]:
    """Of each group: its origin, and the group that it is shown as."""
    found: dict[int, dict[str, Any]] = {}
    asked = _with_groups(select(groups.c.id, *_GROUP).select_from(groups), seen)
    for start in range(0, len(some), ASKED_AT_ONCE):
        rows = await connection.execute(asked.where(groups.c.id.in_(some[start : start + ASKED_AT_ONCE])))
        found.update((int(row["id"]), dict(row)) for row in rows.mappings())
    return found


def _divided(rows: Sequence[Mapping[Any, Any]], by: Sequence[str], *, exact: bool) -> Facets:
    """Sums of rows that have a column `letters`. Groups are told by number, with their title, and queues with
    their vhost. Without a title: the group is not theirs, and counts for places alone."""
    found: dict[str, tuple[Facet, ...]] = {}
    titles = {str(row["group"]): str(row["title"]) for row in rows}
    for name in by:
        times = Counter[tuple[str, str]]()
        for row in rows:
            if name in _OF_A_GROUP and row["title"] is None:
                continue
            times[str(row[name]), str(row["vhost"]) if name == "queue" else ""] += int(row["letters"])
        found[name] = tuple(
            Facet(value=value, letters=letters_, label=titles[value] if name == "group" else "", vhost=vhost)
            for (value, vhost), letters_ in times.most_common(_SHOWN)
        )
    return Facets(by=found, exact=exact, total=sum(int(row["letters"]) for row in rows))
