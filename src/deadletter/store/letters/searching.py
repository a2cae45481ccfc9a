"""Finds letters: by what their rows say, by words, and by what is inside them.

Rows are found by index, newest first, in pages that go on after the last id (never by counting from the
start). Words come from the database's own index; whatever that finds is looked into once more, because an
index of words knows neither order nor punctuation. A header or a jq program needs the same look inside. Looks
are bounded: after so much time a page says how far it came, and the next one goes on there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, literal_column, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.compression import unpacked
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.grouping.stored_letter import searched_text
from deadletter.core.letter import header_values
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.text.glob import glob
from deadletter.errors import MessageError
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, id_bytes, id_text
from deadletter.store.letters.letter_tables import Kept, contents, groups, letters, names, tallies
from deadletter.store.letters.letter_views import Facet, Facets, LetterPage, LetterRow

LOOK_S: Final = 0.4
"""A search that looks inside letters says how far it came after this time."""
_PORTION: Final = 200
FACETS_MAX: Final = 10_000
"""Beyond that many, facets count the newest."""
_WORD: Final = re.compile(r"\w+")
_QUOTED: Final = re.compile(r'"([^"]+)"|(\S+)')

Where: TypeAlias = Callable[[Sequence[Letter]], Awaitable[Sequence[bool]]]
"""Which of these letters a jq program wants."""

_queue = names.alias("queue_name")
_origin = names.alias("origin_name")
_cause = names.alias("cause_name")
_type = names.alias("type_name")
_key = names.alias("key_name")
_copy = letters.alias("copy")
_COPIES: Final = (
    select(func.count()).select_from(_copy).where(_copy.c.copy_of == letters.c.id).scalar_subquery()
)
_ROWS: Final = (
    select(
        letters.c.id,
        letters.c.letter_id,
        _queue.c.name.label("queue"),
        _origin.c.name.label("origin"),
        func.coalesce(groups.c.merged_into, groups.c.id).label("group"),
        letters.c.state,
        _cause.c.name.label("cause"),
        letters.c.attempt,
        letters.c.died_ms,
        letters.c.stored_ms,
        letters.c.bytes,
        letters.c.message_id,
        _type.c.name.label("type"),
        _key.c.name.label("routing_key"),
        letters.c.error,
        _COPIES.label("copies"),
    )
    .select_from(letters)
    .join(groups, groups.c.id == letters.c.group_id)
    .join(_queue, _queue.c.id == letters.c.queue)
    .join(_origin, _origin.c.id == groups.c.origin)
    .join(_cause, _cause.c.id == letters.c.cause)
    .join(_type, _type.c.id == letters.c.type)
    .join(_key, _key.c.id == letters.c.routing_key)
)
_KEPT: Final = {LetterState.OPEN: Kept.OPEN, LetterState.DISCARDED: Kept.DISCARDED}
_STATES: Final = {kept.value: state for state, kept in _KEPT.items()}


async def find(
    connection: AsyncConnection,
    query: LetterQuery,
    *,
    where: Where | None = None,
    clock: Callable[[], float],
) -> LetterPage:
    """One page. `clock`: seconds, for the limit on looking inside."""
    conditions = await _conditions(connection, query)
    if conditions is None:
        return LetterPage(letters=(), more=None, looked_at=0)
    if not query.looks_inside:
        found = await _portion(connection, query, conditions, query.after, query.limit + 1)
        rows = await rows_of(connection, found[: query.limit], query.order)
        more = found[query.limit - 1] if len(found) > query.limit else None
        return LetterPage(letters=rows, more=more, looked_at=0)
    until = clock() + LOOK_S
    kept: list[int] = []
    after, looked_at = query.after, 0
    while len(kept) < query.limit and clock() < until:
        some = await _portion(connection, query, conditions, after, _PORTION)
        if not some:
            after = None
            break
        wanted = await _wanted(await contents_of(connection, some), query, where)
        for number in some:
            after = number
            looked_at += 1
            if number in wanted:
                kept.append(number)
                if len(kept) == query.limit:
                    break
        if len(some) < _PORTION and after == some[-1]:
            after = None
            break
    return LetterPage(letters=await rows_of(connection, kept, query.order), more=after, looked_at=looked_at)


async def facets(connection: AsyncConnection, query: LetterQuery) -> Facets:
    """How many, by queue, origin, cause and group. By queue, origin, group and state the counts are kept
    with every change; anything else is counted, up to FACETS_MAX of the newest."""
    if _by_tallies(query):
        return await _tallied(connection, query)
    conditions = await _conditions(connection, query)
    if conditions is None:
        return Facets(by={}, exact=True, total=0)
    newest = (
        select(letters.c.id).where(*conditions).order_by(letters.c.id.desc()).limit(FACETS_MAX + 1)
    ).subquery()
    by: dict[str, tuple[Facet, ...]] = {}
    total = 0
    for name, value in (
        ("queue", _queue.c.name),
        ("origin", _origin.c.name),
        ("cause", _cause.c.name),
        ("group", groups.c.title),
    ):
        counted = (
            select(value, func.count().label("count"))
            .select_from(letters)
            .join(newest, newest.c.id == letters.c.id)
            .join(groups, groups.c.id == letters.c.group_id)
            .join(_queue, _queue.c.id == letters.c.queue)
            .join(_origin, _origin.c.id == groups.c.origin)
            .join(_cause, _cause.c.id == letters.c.cause)
            .group_by(value)
            .order_by(literal_column("count").desc())
        )
        found = tuple(Facet(value=v, letters=n) for v, n in await connection.execute(counted))
        total = sum(facet.letters for facet in found)
        by[name] = found[:50]
    return Facets(by=by, exact=total <= FACETS_MAX and not query.looks_inside, total=min(total, FACETS_MAX))


def _by_tallies(query: LetterQuery) -> bool:
    return query == LetterQuery(
        queue=query.queue,
        origin=query.origin,
        group=query.group,
        state=query.state,
        order=query.order,
        after=query.after,
        limit=query.limit,
    )


async def _tallied(connection: AsyncConnection, query: LetterQuery) -> Facets:
    conditions: list[ColumnElement[bool]] = [tallies.c.letters > 0]
    if query.state is not None:
        conditions.append(tallies.c.state == _KEPT[query.state].value)
    if query.queue is not None:
        conditions.append(_queue.c.name == query.queue)
    if query.origin is not None:
        conditions.append(_origin.c.name == query.origin)
    if query.group is not None:
        conditions.append(func.coalesce(groups.c.merged_into, groups.c.id) == query.group)
    by: dict[str, tuple[Facet, ...]] = {}
    total = 0
    for name, value in (
        ("queue", _queue.c.name),
        ("origin", _origin.c.name),
        ("group", groups.c.title),
        ("category", groups.c.category),
    ):
        counted = (
            select(value, func.sum(tallies.c.letters).label("count"))
            .select_from(tallies)
            .join(groups, groups.c.id == tallies.c.group_id)
            .join(_queue, _queue.c.id == tallies.c.queue)
            .join(_origin, _origin.c.id == groups.c.origin)
            .where(*conditions)
            .group_by(value)
            .order_by(literal_column("count").desc())
        )
        found = tuple(Facet(value=v, letters=int(n)) for v, n in await connection.execute(counted))
        total = sum(facet.letters for facet in found)
        by[name] = found[:50]
    return Facets(by=by, exact=True, total=total)


# -- rows ------------------------------------------------------------------------------------------------
async def rows_of(
    connection: AsyncConnection, ids: Sequence[int], order: LetterOrder = LetterOrder.NEWEST
) -> tuple[LetterRow, ...]:
    """The rows of these letters."""
    found: list[LetterRow] = []
    asked = _ROWS.where(letters.c.id.in_(bindparam("some", expanding=True)))
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        found += [_row(row) for row in rows]
    found.sort(key=lambda row: row.id, reverse=order is LetterOrder.NEWEST)
    return tuple(found)


def _row(row: Any) -> LetterRow:
    told = dict(row._mapping)  # noqa: SLF001 -- SQLAlchemy's public name for it
    return LetterRow(
        **{**told, "letter_id": id_text(bytes(told["letter_id"])), "state": _STATES[told["state"]]}
    )


async def contents_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Letter]:
    """These letters, unpacked."""
    asked = (
        select(contents, _queue.c.name)
        .join(letters, letters.c.id == contents.c.id)
        .join(_queue, _queue.c.id == letters.c.queue)
        .where(contents.c.id.in_(bindparam("some", expanding=True)))
    )
    found: dict[int, Letter] = {}
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        for number, exchange, key, properties, body, queue in rows:
            found[number] = Letter(
                source=queue,
                message=RawMessage(unpacked(bytes(properties)), unpacked(bytes(body))),
                came_by=ExchangeKey(bytes(exchange), bytes(key)),
                redelivered=False,
            )
    return found


async def keys_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, StoreKeys]:
    """What these letters are known by."""
    asked = select(
        letters.c.id,
        letters.c.letter_id,
        letters.c.same,
        letters.c.message,
        letters.c.died_ms,
        letters.c.stored_ms,
    ).where(letters.c.id.in_(bindparam("some", expanding=True)))
    found: dict[int, StoreKeys] = {}
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        for number, letter_id, same, message, died_ms, stored_ms in rows:
            found[number] = StoreKeys(
                letter_id=id_text(bytes(letter_id)),
                same=bytes(same),
                message=bytes(message),
                died_ms=died_ms,
                stored_ms=stored_ms,
            )
    return found


async def _portion(
    connection: AsyncConnection,
    query: LetterQuery,
    conditions: Sequence[ColumnElement[bool]],
    after: int | None,
    limit: int,
) -> list[int]:
    asked: Select[Any] = select(letters.c.id).where(*conditions).limit(limit)
    newest = query.order is LetterOrder.NEWEST
    if after is not None:
        asked = asked.where(letters.c.id < after if newest else letters.c.id > after)
    if words := _words(query):
        asked = asked.where(_matches(connection, words))
    asked = asked.order_by(letters.c.id.desc() if newest else letters.c.id)
    return [int(number) for (number,) in await connection.execute(asked)]


async def _conditions(connection: AsyncConnection, query: LetterQuery) -> list[ColumnElement[bool]] | None:
    """What must hold of a row; None: a name that is in no row."""
    conditions: list[ColumnElement[bool]] = [letters.c.copy_of.is_(None)]
    columns = letters.c
    if query.ids:
        conditions.append(columns.id.in_(query.ids))
    if query.state is not None:
        conditions.append(columns.state == _KEPT[query.state].value)
    for name, column in ((query.queue, columns.queue), (query.cause, columns.cause)):
        if name is not None:
            number = await connection.scalar(select(names.c.id).where(names.c.name == name))
            if number is None:
                return None
            conditions.append(column == number)
    if query.group is not None or query.origin is not None:
        some = await _groups(connection, query)
        if not some:
            return None
        conditions.append(columns.group_id.in_(some))
    if query.message_id is not None:
        conditions.append(columns.message_id == query.message_id)
    if query.letter_id is not None:
        conditions.append(columns.letter_id == id_bytes(query.letter_id))
    if query.died_from_ms is not None:
        conditions.append(columns.died_ms >= query.died_from_ms)
    if query.died_until_ms is not None:
        conditions.append(columns.died_ms < query.died_until_ms)
    if query.error is not None:
        conditions.append(func.lower(columns.error).contains(query.error.lower(), autoescape=True))
    return conditions


async def _groups(connection: AsyncConnection, query: LetterQuery) -> list[int]:
    asked = select(groups.c.id).join(_origin, _origin.c.id == groups.c.origin)
    conditions: list[ColumnElement[bool]] = []
    if query.origin is not None:
        conditions.append(_origin.c.name == query.origin)
    if query.group is not None:
        conditions.append((groups.c.id == query.group) | (groups.c.merged_into == query.group))
    return [int(number) for (number,) in await connection.execute(asked.where(and_(*conditions)))]


# -- words and looks inside ------------------------------------------------------------------------------
def _words(query: LetterQuery) -> list[str]:
    """The words that the index must know: of the text, and of header names and values."""
    told = [query.text or ""]
    told += [f"{name} {value}" for name, value in query.headers if "*" not in value]
    return _WORD.findall(" ".join(told).lower())[:20]


def _matches(connection: AsyncConnection, words: Sequence[str]) -> ColumnElement[bool]:
    if connection.dialect.name == "postgresql":
        found = text(
            "SELECT c.id FROM deadletter_contents c WHERE c.words @@ to_tsquery('simple', :words)"
        ).bindparams(words=" & ".join(f"'{word}'" for word in words))
    else:
        found = text("SELECT rowid FROM deadletter_words WHERE deadletter_words MATCH :words").bindparams(
            words=" AND ".join(f'"{word}"' for word in words)
        )
    return letters.c.id.in_(found.columns(letters.c.id).scalar_subquery())


async def _wanted(found: dict[int, Letter], query: LetterQuery, where: Where | None) -> set[int]:
    wanted = [
        number
        for number, letter in found.items()
        if _has_headers(letter, query.headers) and _has_text(letter, query.text)
    ]
    if where is not None and wanted:
        answers = await where([found[number] for number in wanted])
        wanted = [number for number, answer in zip(wanted, answers, strict=True) if answer]
    return set(wanted)


def _has_headers(letter: Letter, wanted: Sequence[tuple[str, str]]) -> bool:
    if not wanted:
        return True
    try:
        headers = letter.headers
    except MessageError:
        return False
    return all(
        glob(pattern, header_values.text(headers.get(name), 4_000) or "\0") for name, pattern in wanted
    )


def _has_text(letter: Letter, wanted: str | None) -> bool:
    if not wanted:
        return True
    said = searched_text(letter).lower()
    return all((quoted or word).lower() in said for quoted, word in _QUOTED.findall(wanted))
