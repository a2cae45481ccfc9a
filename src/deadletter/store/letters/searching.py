"""Finds letters: by what their rows say, by words, and by what is inside them.

Rows are found by index, newest first, in pages that go on after the last id (never by counting from the
start). Words come from the database's own index; whatever that finds is looked into once more, because an
index of words knows neither order nor punctuation. A header or a jq program needs the same look inside. Looks
are bounded: after so much time a page says how far it came, and the next one goes on there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, bindparam, false, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.grouping.letter_words import words_of
from deadletter.core.grouping.stored_letter import HEADER_CHARS, is_searched, read_inside, searched_text
from deadletter.core.letter import header_values
from deadletter.core.letter.letter import Letter
from deadletter.core.text.glob import glob
from deadletter.store.letters import word_index
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_list import ROW_STATES, rows_of
from deadletter.store.letters.letter_rows import clean, of_id
from deadletter.store.letters.letter_tables import IS_DISCARDED, groups, letters, names, tallies
from deadletter.store.letters.letter_views import LetterPage

LOOK_S: Final = 0.4
"""A search that looks inside letters says how far it came after this time."""
_PORTION: Final = 500
_LOOKED_INTO: Final = 50
_FEW: Final = 500
"""So few letters are looked into one by one, without asking the index of words."""
_MAX_WORDS: Final = 20
_VALUE_CHARS: Final = 4_000
_QUOTED: Final = re.compile(r'"([^"]+)"|(\S+)')

Where: TypeAlias = Callable[[Sequence[Letter]], Awaitable[Sequence[bool]]]
"""Which of these letters a jq program wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How the letters of a query are found: what must hold of a row, and the words that the index knows."""

    conditions: tuple[ColumnElement[bool], ...]
    words: tuple[str, ...]
    error: str
    """Text in small letters that must be in the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The next letters, and where to go on; None: there are no more."""

    ids: list[int]
    after: int | None


async def find(
    connection: AsyncConnection,
    query: LetterQuery,
    *,
    where: Where | None = None,
    clock: Callable[[], float],
) -> LetterPage:
    """One page. `clock`: seconds, for the limit on looking inside."""
    plan = await plan_of(connection, query)
    if plan is None:
        return LetterPage(letters=(), more=None, looked_at=0)
    inside = query.looks_inside
    size = _PORTION if inside or plan.words or plan.error else query.limit + 1
    until = clock() + LOOK_S
    kept: list[int] = []
    more, looked_at = query.after, 0
    while True:
        portion = await next_portion(connection, plan, query.order, more, size)
        for start in range(0, len(portion.ids), _LOOKED_INTO):
            some = portion.ids[start : start + _LOOKED_INTO]
            wanted = await _wanted(connection, some, query, where) if inside else set(some)
            looked_at += len(some) if inside else 0
            kept += [number for number in some if number in wanted]
            if len(kept) > query.limit or clock() >= until:
                more = some[-1]
                break
        else:
            more = portion.after
        if more is None or len(kept) > query.limit or clock() >= until:
            break
    if len(kept) > query.limit:
        kept = kept[: query.limit]
        more = kept[-1]
    return LetterPage(letters=await rows_of(connection, kept, query.order), more=more, looked_at=looked_at)


async def next_portion(
    connection: AsyncConnection, plan: SearchPlan, order: LetterOrder, after: int | None, size: int
) -> Portion:
    """The letters among the next ones that are as planned; as to words, as far as the index knows."""
    newest = order is LetterOrder.NEWEST
    asked: Select[Any] = select(letters.c.id, letters.c.error).where(*plan.conditions)
    asked = asked.order_by(letters.c.id.desc() if newest else letters.c.id)
    if plan.words:
        some = await word_index.having(connection, plan.words, after=after, newest=newest, limit=size)
        asked = asked.where(letters.c.id.in_(bindparam("some", expanding=True)))
        rows = (await connection.execute(asked, {"some": some})).all() if some else []
        full, last = len(some) == size, some[-1] if some else None
    else:
        if after is not None:
            asked = asked.where(letters.c.id < after if newest else letters.c.id > after)
        rows = list((await connection.execute(asked.limit(size))).all())
        full, last = len(rows) == size, rows[-1].id if rows else None
    ids = [int(number) for number, error in rows if not plan.error or _says(error, plan.error)]
    return Portion(ids=ids, after=last if full else None)


def _says(error: str, wanted: str) -> bool:
    return wanted in error.lower() and set(words_of(wanted)) <= set(words_of(error))


async def plan_of(connection: AsyncConnection, query: LetterQuery) -> SearchPlan | None:
    """None: a name that no letter has."""
    conditions: list[ColumnElement[bool]] = [letters.c.copy_of.is_(None)]
    columns = letters.c
    words = _words(query)
    if query.ids:
        conditions.append(columns.id.in_(query.ids))
    if query.state is LetterState.DISCARDED:
        conditions.append(columns.state == IS_DISCARDED)
    elif query.state is not None:
        conditions.append(columns.state == ROW_STATES[query.state].value)
    few = bool(query.ids or query.letter_id)
    named = ((query.vhost, columns.vhost), (query.queue, columns.queue), (query.cause, columns.cause))
    for name, column in named:
        if name is None:
            continue
        number = await connection.scalar(select(names.c.id).where(names.c.name == clean(name)))
        if number is None:
            return None
        conditions.append(column == number)
        if column is columns.queue and query.vhost is None:
            conditions.append(columns.vhost.in_(await _vhosts(connection, int(number))))
        if column is columns.cause:
            words.append(word_index.cause_word(int(number)))
    if query.group is not None or query.origin is not None:
        some = await _groups(connection, query)
        conditions.append(columns.group_id.in_(some) if some else false())
        held = select(func.coalesce(func.sum(tallies.c.letters), 0)).where(tallies.c.group_id.in_(some))
        few = few or not some or int(await connection.scalar(held) or 0) <= _FEW
    if query.message_id is not None:
        conditions.append(columns.message_id == clean(query.message_id))
        words += words_of(clean(query.message_id))
    if query.letter_id is not None:
        conditions.append(of_id(query.letter_id))
    if query.died_from_ms is not None or query.died_until_ms is not None:
        conditions += await _died(connection, query)
    error = clean(query.error or "").lower()
    return SearchPlan(
        conditions=tuple(conditions), words=() if few else tuple(words[:_MAX_WORDS]), error=error
    )


async def _vhosts(connection: AsyncConnection, queue: int) -> list[int]:
    """Those that have letters of a queue of this name. Mostly one: then the index has them in their order."""
    asked = select(tallies.c.vhost).where(tallies.c.queue == queue).distinct()
    return [int(number) for (number,) in await connection.execute(asked)]


async def _died(connection: AsyncConnection, query: LetterQuery) -> list[ColumnElement[bool]]:
    """By index it is told between which ids those are that died then: they came nearly in that order."""
    column = letters.c.died_ms
    conditions: list[ColumnElement[bool]] = []
    if query.died_from_ms is not None:
        conditions.append(column >= query.died_from_ms)
    if query.died_until_ms is not None:
        conditions.append(column < query.died_until_ms)
    bounds = select(func.min(letters.c.id), func.max(letters.c.id)).where(*conditions)
    first, last = (await connection.execute(bounds)).one()
    if first is None:
        return [false()]
    return [*conditions, letters.c.id.between(int(first), int(last))]


async def _groups(connection: AsyncConnection, query: LetterQuery) -> list[int]:
    """With those that were merged into it."""
    origin = names.alias("origin_name")
    asked = select(groups.c.id).join(origin, origin.c.id == groups.c.origin)
    conditions: list[ColumnElement[bool]] = []
    if query.origin is not None:
        conditions.append(origin.c.name == clean(query.origin))
    if query.group is not None:
        conditions.append((groups.c.id == query.group) | (groups.c.merged_into == query.group))
    return [int(number) for (number,) in await connection.execute(asked.where(and_(*conditions)))]


# -- words and looks inside ------------------------------------------------------------------------------
def _words(query: LetterQuery) -> list[str]:
    """The words that the index must know: of the text, of the error, and of headers that are in it."""
    found = words_of(clean(query.text or "")) + words_of(clean(query.error or ""))
    for name, pattern in query.headers:
        if is_searched(name):
            found += words_of(clean(name))
            if "*" not in pattern and len(pattern) < HEADER_CHARS:
                found += words_of(clean(pattern))
    return list(dict.fromkeys(found))


async def _wanted(
    connection: AsyncConnection, some: Sequence[int], query: LetterQuery, where: Where | None
) -> set[int]:
    found = await contents_of(connection, some)
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
    headers = read_inside(letter).headers
    told = ((pattern, header_values.text(headers.get(name), _VALUE_CHARS)) for name, pattern in wanted)
    return all(value is not None and glob(pattern, value) for pattern, value in told)


def _has_text(letter: Letter, wanted: str | None) -> bool:
    """As it stands there, and in whole words: as the index has them."""
    return not wanted or has_words(searched_text(letter), wanted)


def has_words(said: str, wanted: str) -> bool:
    """Whether each word, or what stands in quotes, is in a text."""
    said = clean(said)
    low = said.lower()
    if not all(clean(quoted or word).lower() in low for quoted, word in _QUOTED.findall(wanted)):
        return False
    return set(words_of(clean(wanted))) <= set(words_of(said))
