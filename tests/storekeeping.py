"""What is in a store, looked at from outside, for tests of whoever brings letters there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from tests.serving import Application, Served

from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.core.letter.letter import Letter
from deadletter.errors import StoreError
from deadletter.store.engine import new_engine
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.store_address import parse

PARK = "[default_policy]\nretries = 0\n"
WATCH = '[[watches]]\ndlq = "*.dlq"\n'
INGEST = "[desk]\ningest = true\n"


def settings(url: str, more: str = "") -> str:
    """Of a service that parks whatever dies, and brings it into the store."""
    return f'[store]\nurl = "{url}"\n{PARK}{WATCH}{INGEST}{more}'


async def dying(app: Application, origin: str) -> None:
    """An origin whose consumer rejects everything."""
    await app.with_dlq(origin)
    await app.consume(origin, lambda _delivery, _times: False)


async def until_empty(app: Application, queue: str, seconds: float = 120.0) -> None:
    """Until there is no letter in it that nobody has in hand."""
    async with asyncio.timeout(seconds):
        while await app.depth(queue):  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.05)


def stored(one: Served, what: str) -> int:
    """How many messages this instance committed: new, copy or again."""
    line = next((line for line in one.metrics().splitlines() if f'stored_total{{what="{what}"}}' in line), "")
    return int(float(line.rpartition(" ")[2])) if line else 0


async def listed(url: str, query: LetterQuery | None = None) -> list[LetterRow]:
    """Every letter that a list shows."""
    rows: list[LetterRow] = []
    query = query or LetterQuery()
    async with open_letters(url, prepare=False) as store:
        after: int | None = None
        while True:
            page = await store.find(_page(query, after))
            rows += page.letters
            if page.more is None:
                return rows
            after = page.more


def _page(query: LetterQuery, after: int | None) -> LetterQuery:
    return LetterQuery(queue=query.queue, vhost=query.vhost, after=after, limit=MAX_LIMIT)


async def kept(url: str) -> dict[int, Letter]:
    """Every listed letter, whole."""
    ids = [row.id for row in await listed(url)]
    engine = new_engine(parse(url))
    try:
        async with engine.connect() as connection:
            return await contents_of(connection, ids)
    finally:
        await engine.dispose()


async def bodies(url: str) -> Counter[bytes]:
    """How often each body is listed."""
    return Counter(letter.body for letter in (await kept(url)).values())


async def until_listed(url: str, holds: Callable[[list[LetterRow]], bool], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not await _holds(url, holds):  # noqa: ASYNC110 -- the store tells nobody
            await asyncio.sleep(0.1)


async def _holds(url: str, holds: Callable[[list[LetterRow]], bool]) -> bool:
    try:
        return holds(await listed(url))
    except StoreError:
        return False  # nobody has prepared it yet, or it is away
