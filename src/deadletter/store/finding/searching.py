"""Finds letters: by what their rows say, by words, and by what is inside them.

Rows are found by index, newest first, in pages that go on after the last id (never by counting from the
start). Words come from the database's own index; whatever that finds is looked into once more, because an
index of words knows neither order nor punctuation. A header or a jq program needs the same look inside. Looks
are bounded: after so much time a page says how far it came, and the next one goes on there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, ScalarSelect, Select, and_, false, func, literal_column, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.grouping.letter_words import words_of
from deadletter.core.grouping.stored_letter import HEADER_CHARS, is_searched, read_inside, searched_inside
from deadletter.core.letter import header_values
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.masked_letter import hidden, masked
from deadletter.core.text.glob import glob
from deadletter.store.finding import word_index
from deadletter.store.finding.letter_list import ROW_STATES, rows_of
from deadletter.store.finding.within_scope import letters_within
from deadletter.store.letters.discards import thrown_away_by
from deadletter.store.letters.large_letters import LARGE_BYTES, aside
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_rows import among, clean, of_id, some_of
from deadletter.store.letters.letter_tables import groups, letters, names, tallies
from deadletter.store.letters.letter_views import LetterPage

LOOK_S: Final = 0.4
"""A search that looks inside letters says how far it came after this time."""
_PORTION: Final = 500
_LOOKED_INTO: Final = 50
_FEW: Final = 500
"""So few letters are looked into one by one, without asking the index of words."""
_FEW_ROWS: Final = 5_000
"""The same where their rows say enough: the index would tell of all letters that have the word."""
_OF_A_TIME: Final = 250_000
_MAX_WORDS: Final = 20
_GROUPS_READ: Final = 20_000
"""In so many groups, the last to fail, a part of a word is looked for."""
_GROUPS_ASKED: Final = 20
_WINDOW: Final = 20_000
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
    error_words: frozenset[str] = frozenset()
    """Those of the words that are in `error`."""
    saying: tuple[int, ...] = ()
    """Groups that say it, perhaps as a part of a word, which the index does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The next letters, and where to go on; None: there are no more."""

    ids: list[int]
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedThrough:
    """Some that are wanted, among `looked_at` that had to be looked into; `more`: where to go on."""

    ids: list[int]
    looked_at: int
    more: int | None


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
    size = _PORTION if query.looks_inside or plan.words or plan.error else query.limit + 1
    until = clock() + LOOK_S
    kept: list[int] = []
    more, looked_at = query.after, 0
    async for some in looked_through(connection, query, plan, size=size, where=where):
        kept += some.ids
        looked_at += some.looked_at
        more = some.more
        if len(kept) > query.limit or clock() >= until:
            break
    if len(kept) > query.limit:
        kept = kept[: query.limit]
        more = kept[-1]
    return LetterPage(letters=await rows_of(connection, kept, query.order), more=more, looked_at=looked_at)


async def looked_through(
    connection: AsyncConnection, query: LetterQuery, plan: SearchPlan, *, size: int, where: Where | None
) -> AsyncIterator[LookedThrough]:
    """All that is wanted, little by little, in the order of the query."""
    after = query.after
    while True:
        portion = await next_portion(connection, plan, query.order, after, size)
        after = portion.after
        if not query.looks_inside or not portion.ids:
            yield LookedThrough(ids=portion.ids, looked_at=0, more=after)
        else:
            left = portion.ids
            large = await _large(connection, left) if query.scope.masks else frozenset()
            while left:
                some, left = _parted(left, large)
                wanted = await wanted_of(connection, some, query, where)
                yield LookedThrough(
                    ids=[number for number in some if number in wanted],
                    looked_at=len(some),
                    more=some[-1] if left else after,
                )
        if after is None:
            return


def _parted(ids: list[int], large: Collection[int]) -> tuple[list[int], list[int]]:
    """Those that are looked into before the clock is looked at, and the rest: a large one ends them."""
    some = ids[:_LOOKED_INTO]
    ends = next((place for place, one in enumerate(some, 1) if one in large), len(some))
    return ids[:ends], ids[ends:]


async def _large(connection: AsyncConnection, some: Sequence[int]) -> frozenset[int]:
    """Those of these letters that take long to be looked into, where fields of theirs are masked."""
    asked = select(letters.c.id).where(
        text(among(connection, "deadletter_letters.id")), letters.c.bytes > LARGE_BYTES
    )
    rows = await connection.execute(asked, {"some": some_of(connection, some)})
    return frozenset(int(number) for (number,) in rows)


async def next_portion(
    connection: AsyncConnection, plan: SearchPlan, order: LetterOrder, after: int | None, size: int
) -> Portion:
    """The letters among the next ones that are as planned; as to words, as far as the index knows."""
    newest = order is LetterOrder.NEWEST
    next_ = _Next(connection, plan, newest=newest, after=after, size=size)
    found, ends = await next_.rows(plan.words)
    if plan.saying:
        words = [word for word in plan.words if word not in plan.error_words]
        more, ends_too = await next_.said(words)
        # Neither may run ahead of the other: what is given is whole up to where both came.
        reached = [end for end in (ends, ends_too) if end is not None]
        ends = (max(reached) if newest else min(reached)) if reached else None
        found = {**found, **more}
        if ends is not None:
            found = {one: said for one, said in found.items() if (one >= ends if newest else one <= ends)}
    ids = [one for one, error in found.items() if plan.error in error.lower()]
    return Portion(ids=sorted(ids, reverse=newest), after=ends)


@dataclass(frozen=True, slots=True)
class _Next:
    """Asks for the next letters and their errors, and where it ended; None: there are no more."""

    connection: AsyncConnection
    plan: SearchPlan
    _: KW_ONLY
    newest: bool
    after: int | None
    size: int

    async def rows(
        self, words: Sequence[str], *further: ColumnElement[bool], size: int = 0
    ) -> tuple[dict[int, str], int | None]:
        size = size or self.size
        error = letters.c.error if self.plan.error else literal_column("''").label("error")
        asked: Select[Any] = select(letters.c.id, error).where(*self.plan.conditions, *further)
        asked = asked.order_by(letters.c.id.desc() if self.newest else letters.c.id)
        if words:
            some = await word_index.having(
                self.connection, words, after=self.after, newest=self.newest, limit=size
            )
            asked = asked.where(text(among(self.connection, "deadletter_letters.id")))
            told = {"some": some_of(self.connection, some)}
            rows = (await self.connection.execute(asked, told)).all() if some else []
            ends = some[-1] if len(some) == size else None
        else:
            if self.after is not None:
                asked = asked.where(letters.c.id < self.after if self.newest else letters.c.id > self.after)
            rows = list((await self.connection.execute(asked.limit(size))).all())
            ends = int(rows[-1].id) if len(rows) == size else None
        return {int(one): str(error) for one, error in rows}, ends

    async def said(self, words: Sequence[str]) -> tuple[dict[int, str], int | None]:
        """Letters of the groups that say what the error must say: a few groups one by one, each by index."""
        saying = self.plan.saying
        if words:
            return await self.rows(words, letters.c.group_id.in_(saying))
        if len(saying) > _GROUPS_ASKED:
            return await self._among(saying)
        found: dict[int, str] = {}
        reached: list[int] = []
        for group in saying:
            rows, ends = await self.rows((), letters.c.group_id == group, size=self.size // len(saying) + 1)
            found.update(rows)
            reached += [] if ends is None else [ends]
        return found, (max(reached) if self.newest else min(reached)) if reached else None

    async def _among(self, some: Sequence[int]) -> tuple[dict[int, str], int | None]:
        """Of many groups: one letter after the other (by index all of them would have to be sorted), and no
        more than some thousands at once."""
        # each by itself: both at once would read the whole table
        first = await self.connection.scalar(select(func.min(letters.c.id)))
        last = await self.connection.scalar(select(func.max(letters.c.id)))
        if first is None or last is None:
            return {}, None
        if self.newest:
            edge = (int(last) + 1 if self.after is None else self.after) - _WINDOW
            within, over = letters.c.id >= edge, edge <= int(first)
        else:
            edge = (int(first) - 1 if self.after is None else self.after) + _WINDOW
            within, over = letters.c.id <= edge, edge >= int(last)
        found, ends = await self.rows((), (letters.c.group_id + 0).in_(some), within)
        return found, ends if ends is not None or over else edge


async def plan_of(connection: AsyncConnection, query: LetterQuery) -> SearchPlan | None:
    """None: a name that no letter has."""
    conditions: list[ColumnElement[bool]] = [letters.c.copy_of.is_(None)]
    columns = letters.c
    words = _words(query)
    if query.ids:
        conditions.append(columns.id.in_(query.ids))
    if query.state is LetterState.DISCARDED:
        conditions.append(columns.discarded_ms.is_not(None))
    elif query.state is not None:
        conditions.append(columns.state == ROW_STATES[query.state].value)
    if not query.scope.whole:
        narrow = bool(query.ids or query.letter_id) or query.group is not None or query.origin is not None
        conditions += await letters_within(connection, query.scope, narrow=narrow)
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
        most = _FEW if query.headers or query.text or query.where else _FEW_ROWS
        few = few or not some or int(await connection.scalar(held) or 0) <= most
    if query.message_id is not None:
        conditions.append(columns.message_id == clean(query.message_id))
        words += words_of(clean(query.message_id))
    if query.discard is not None:
        conditions.append(await thrown_away_by(connection, query.discard))
    if query.letter_id is not None:
        conditions.append(of_id(query.letter_id))
    if query.died_from_ms is not None or query.died_until_ms is not None:
        conditions += await _died(connection, query)
    error = clean(query.error or "").lower()
    by_index = bool(words) and not few
    return SearchPlan(
        conditions=tuple(conditions),
        words=tuple(words[:_MAX_WORDS]) if by_index else (),
        error=error,
        error_words=frozenset(words_of(error)),
        saying=await _saying(connection, error) if error and by_index else (),
    )


async def _saying(connection: AsyncConnection, error: str) -> tuple[int, ...]:
    """The groups in whose title, error or fingerprint this text is."""
    told = select(groups.c.id, groups.c.title, groups.c.error_type, groups.c.parts)
    rows = await connection.execute(told.order_by(groups.c.last_ms.desc()).limit(_GROUPS_READ))
    return tuple(int(number) for number, *said in rows if any(error in str(one).lower() for one in said))


async def _vhosts(connection: AsyncConnection, queue: int) -> list[int]:
    """Those that have letters of a queue of this name. Mostly one: then the index has them in their order."""
    asked = select(tallies.c.vhost).where(tallies.c.queue == queue).distinct()
    return [int(number) for (number,) in await connection.execute(asked)]


async def _died(connection: AsyncConnection, query: LetterQuery) -> list[ColumnElement[bool]]:
    """Of some it is told by index between which ids they are: those that died then came nearly in that order.
    Of many it is not: whoever goes through the ids meets them soon."""
    column, since_ms, until_ms = letters.c.died_ms, query.died_from_ms, query.died_until_ms
    conditions: list[ColumnElement[bool]] = [] if since_ms is None else [column >= since_ms]
    conditions += [] if until_ms is None else [column < until_ms]
    # no more than so many: PostgreSQL would look for the least id among all ids, until one is of that time
    some = select(letters.c.id).where(*conditions).limit(_OF_A_TIME).subquery()
    bounds = select(func.count(), func.min(some.c.id), func.max(some.c.id))
    found, first, last = (await connection.execute(bounds)).one()
    if found in (0, _OF_A_TIME):
        return conditions if found else [false()]
    return [*conditions, letters.c.id.between(int(first), int(last))]


def root_of(group: int) -> ScalarSelect[int]:
    """The number of a group, or of the one that it was merged into: both mean all of its letters."""
    asked = groups.alias("asked")
    return select(func.coalesce(asked.c.merged_into, asked.c.id)).where(asked.c.id == group).scalar_subquery()


async def _groups(connection: AsyncConnection, query: LetterQuery) -> list[int]:
    """With those that were merged into it."""
    origin = names.alias("origin_name")
    asked = select(groups.c.id).join(origin, origin.c.id == groups.c.origin)
    conditions: list[ColumnElement[bool]] = []
    if query.origin is not None:
        conditions.append(origin.c.name == clean(query.origin))
    if query.group is not None:
        conditions.append(func.coalesce(groups.c.merged_into, groups.c.id) == root_of(query.group))
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


async def wanted_of(
    connection: AsyncConnection, some: Sequence[int], query: LetterQuery, where: Where | None
) -> set[int]:
    """Those of these letters that have inside what is looked for."""
    found = await contents_of(connection, some)
    errors = await _errors(connection, some) if query.error and query.scope.masks else {}
    wanted: list[int] = []
    for number, letter in found.items():
        looked = partial(_is_wanted, letter, query, errors.get(number, ""))
        if await aside(letter, looked) if query.scope.masks else looked():
            wanted.append(number)
    if where is not None and wanted:
        answers = await where([found[number] for number in wanted])
        wanted = [number for number, answer in zip(wanted, answers, strict=True) if answer]
    return set(wanted)


def _is_wanted(letter: Letter, query: LetterQuery, error: str) -> bool:
    """As whoever asks sees it: what is masked for them is not there. `error`: where that has to be asked."""
    seen = masked(read_inside(letter), query.scope.masks)
    said = "" if seen.unknown else hidden(error, seen.secrets).lower()
    if query.error and error and clean(query.error).lower() not in said:
        return False
    return _has_headers(seen.inside.headers, query.headers) and (
        not query.text or has_words(hidden(searched_inside(seen.inside), seen.secrets), query.text)
    )


async def _errors(connection: AsyncConnection, some: Sequence[int]) -> dict[int, str]:
    asked = select(letters.c.id, letters.c.error).where(text(among(connection, "deadletter_letters.id")))
    rows = await connection.execute(asked, {"some": some_of(connection, some)})
    return {int(number): str(error) for number, error in rows}


def _has_headers(headers: Mapping[str, Any], wanted: Sequence[tuple[str, str]]) -> bool:
    told = ((pattern, header_values.text(headers.get(name), _VALUE_CHARS)) for name, pattern in wanted)
    return all(value is not None and glob(pattern, value) for pattern, value in told)


def has_words(said: str, wanted: str) -> bool:
    """Whether each word, or what stands in quotes, is in a text: as it stands there, and in whole words, as
    the index has them."""
    said = clean(said)
    low = said.lower()
    if not all(clean(quoted or word).lower() in low for quoted, word in _QUOTED.findall(wanted)):
        return False
    return set(words_of(clean(wanted))) <= set(words_of(said))
