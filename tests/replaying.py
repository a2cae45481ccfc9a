"""Replays under test: letters put into a store, a ledger kept by the consumer, and what the store says."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.letters import headers_of, letter
from tests.serving import Application, Served

from deadletter.amqp.channel import Delivery
from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.replay_pace import AllAtOnce, ReplayPace
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_target import HOME, ReplayTarget
from deadletter.store.engine import new_engine
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView
from deadletter.store.store_address import parse

PORTION = 1_000
_T = TypeVar("_T")


def letter_id(number: int) -> str:
    return f"{number:032x}"


def parked_letter(number: int, *, origin: str = "orders", body: bytes | None = None) -> Letter:
    """As the service parks one."""
    headers: dict[str, Value] = {
        names.ID: letter_id(number),
        names.SOURCE: f"{origin}.dlq",
        names.MOVE: f"run-{number}",
        names.SOURCE_EXCHANGE: "",
        names.SOURCE_ROUTING_KEY: origin,
        names.ORIGIN_QUEUE: origin,
        names.ORIGIN_EXCHANGE: "shop",
        names.ORIGIN_ROUTING_KEY: f"order.{number % 3}",
        names.ATTEMPT: 5,
        names.DELIVERIES: 7,
        names.CAUSE: "retries-exhausted",
        names.WHY: "it failed 6 times",
        names.PARKED_AT: 1_700_000_000_000 + number,
        names.ERROR_TYPE: "ConnectionError",
        "tenant": "a",
    }
    made = letter(body if body is not None else b"%d" % number, headers=headers)
    return Letter(
        source=names.PARKED,
        message=made,
        came_by=ExchangeKey(b"", names.PARKED.encode()),
        redelivered=False,
    )


async def stock(url: str, vhost: str, some: list[Letter]) -> None:
    """These letters into the store."""
    async with open_letters(url) as store:
        for start in range(0, len(some), PORTION):
            batch = some[start : start + PORTION]
            await store.ingest([stored_letter(one, now_ms=1_700_000_000_000, vhost=vhost) for one in batch])


async def begun(
    url: str,
    vhost: str,
    *,
    selection: LetterQuery | None = None,
    target: ReplayTarget = HOME,
    pace: ReplayPace | None = None,
    outcome_ms: int = 600_000,
    overrules_guards: bool = False,
    edit: str = "",
    recipe: str = "",
) -> int:
    """A replay that nobody works on yet."""
    plan = ReplayPlan(
        selection=selection or LetterQuery(),
        vhost=vhost,
        target=target,
        pace=pace or AllAtOnce(),
        outcome_ms=outcome_ms,
        overrules_guards=overrules_guards,
        edit=edit,
        recipe=recipe,
    )
    async with open_letters(url, prepare=False) as store:
        return (await ReplayStore(store).begin(plan, who="ann", why="a test")).id


async def replay_of(url: str, replay: int) -> ReplayView:
    async with open_letters(url, prepare=False) as store:
        return await ReplayStore(store).view(replay)


async def changed(url: str, how: Callable[[ReplayStore], Awaitable[_T]]) -> _T:
    """What somebody else does to the replays of a store."""
    async with open_letters(url, prepare=False) as store:
        return await how(ReplayStore(store))


async def open_ids(url: str) -> list[str]:
    """The ids of all letters that are open, each as often as it is."""
    found: list[str] = []
    query: LetterQuery | None = LetterQuery(limit=MAX_LIMIT)
    async with open_letters(url, prepare=False) as store:
        while query is not None:
            page = await store.find(query)
            found += [row.letter_id for row in page.letters]
            query = None if page.more is None else replace(query, after=page.more)
    return found


async def until_replay(
    url: str, replay: int, holds: Callable[[ReplayView], bool], seconds: float = 120.0
) -> ReplayView:
    """Until this holds of it. The store may be away meanwhile."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    async with open_letters(url, prepare=False) as store:
        while True:
            view = await ReplayStore(store).view(replay)
            if holds(view):
                return view
            assert loop.time() < until, view
            await asyncio.sleep(0.1)


async def doubtful_ids(url: str, replay: int) -> set[str]:
    """The ids of all letters that may have gone twice."""
    found: set[str] = set()
    after: int | None = None
    async with open_letters(url, prepare=False) as store:
        while True:
            page = await ReplayStore(store).outcomes(replay, after=after, limit=1_000, doubtful=True)
            found |= {one.letter_id for one in page}
            if len(page) < 1_000:
                return found
            after = page[-1].letter


class Ledger:
    """What a consumer really got, by id; kept outside of everything that is tested."""

    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        self.letters: set[tuple[str, bytes]] = set()
        """Ids and bodies: an id is of one letter."""

    def note(self, delivery: Delivery) -> None:
        got = str(headers_of(delivery)[names.ID])
        self.got[got] += 1
        self.letters.add((got, delivery.message.body))

    def take(self, delivery: Delivery, _times: int) -> bool:
        self.note(delivery)
        return True

    @property
    def twice(self) -> set[str]:
        return {one for one, times in self.got.items() if times > 1}


async def consuming(app: Application, queue: str = "orders") -> Ledger:
    """A queue with a dead-letter queue, and a consumer that keeps a ledger."""
    await app.with_dlq(queue)
    ledger = Ledger()
    await app.consume(queue, ledger.take)
    return ledger


@asynccontextmanager
async def asleep(one: Served, url: str) -> AsyncIterator[None]:
    """It stands still (SIGSTOP), and not within a transaction: then nobody else could go on."""
    try:
        one.process.send_signal(signal.SIGSTOP)
        while not await asyncio.to_thread(_is_free, url):
            one.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
            one.process.send_signal(signal.SIGSTOP)
        yield
    finally:
        one.process.send_signal(signal.SIGCONT)


def _is_free(url: str) -> bool:
    """Whether somebody else may write to its replays."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as somebody:
            somebody.execute("PRAGMA busy_timeout = 500")
            try:
                somebody.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            somebody.execute("ROLLBACK")
            return True
    return asyncio.run(_is_free_server(url))


async def _is_free_server(url: str) -> bool:
    engine = new_engine(parse(url))
    try:
        async with engine.begin() as connection:
            for asked in (
                "SET LOCAL lock_timeout = 500",
                "SELECT id FROM deadletter_replays FOR UPDATE",
                "SELECT replay FROM deadletter_replay_letters FOR UPDATE",
            ):
                await connection.execute(text(asked))
    except DBAPIError:
        return False
    finally:
        await engine.dispose()
    return True
