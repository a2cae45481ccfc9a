"""The policies in force while the store changes, goes away, comes back, or was never there.

About `service.policies_in_force`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from tests.postgres import PrivatePostgres
from tests.store.grounds import Ground, PostgresGround, SqliteGround

from deadletter.core.deciding.backoff import Fixed
from deadletter.core.deciding.policy import Match, Policies, Policy
from deadletter.service import policies_in_force as room
from deadletter.service.policies_in_force import PolicySource
from deadletter.service.telling.service_events import PoliciesChanged, Recovered, ServiceEvent, Trouble
from deadletter.store.opening import open_store

pytestmark = pytest.mark.unprepared

HANG_S = 30.0
BACKOFF = Fixed(delays_ms=(1_000,))
FILE = Policies(rules=(Policy(name="file", match=Match(routing_key="a")),))


class Watched:
    """A source, everything it said, and a way to wait for what it will say."""

    def __init__(self, url: str | None, file: Policies = FILE) -> None:
        self.said: list[ServiceEvent] = []
        self._more = asyncio.Event()
        self.source = PolicySource(file, url, BACKOFF, self._emit)

    def _emit(self, event: ServiceEvent) -> None:
        self.said.append(event)
        self._more.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not holds():
                self._more.clear()
                await self._more.wait()

    async def has(self, *names: str) -> None:
        await self.until(lambda: self.names == [*names])

    @property
    def names(self) -> list[str]:
        return [policy.name.removeprefix("dlq_event_config:") for policy in self.source.current]

    def of(self, kind: type[ServiceEvent]) -> list[ServiceEvent]:
        return [event for event in self.said if isinstance(event, kind)]


@asynccontextmanager
async def running(watched: Watched) -> AsyncIterator[Watched]:
    task = asyncio.create_task(watched.source.run())
    try:
        yield watched
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, HANG_S)


async def test_the_table_is_in_force_and_what_changes_in_it(ground: Ground) -> None:
    heard: list[list[str]] = []
    watched = Watched(ground.url)
    watched.source.on_change.append(lambda policies: heard.append([policy.name for policy in policies]))
    assert watched.names == ["file", "default"]
    async with running(watched):
        await watched.until(lambda: bool(watched.said))
        assert watched.said == [PoliciesChanged(count=2, where=watched.said[0].where)]  # type: ignore[union-attr]
        ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 3), (2, NULL, 3), (3, 'b', NULL)")
        await watched.has("a", "file", "default")
        last = watched.said[-1]
        assert isinstance(last, PoliciesChanged)
        assert last.count == 3
        assert last.problems == watched.source.problems
        assert [problem.partition(":")[0] for problem in last.problems] == [
            "row 3 (b) is ignored",
            "row 2 is ignored",
        ]
        assert watched.source.current.rules[0].backoff == BACKOFF
        ground.sql("DELETE FROM dlq_event_config")
        await watched.has("file", "default")
    assert heard == [["dlq_event_config:a", "file", "default"], ["file", "default"]]
    assert watched.of(Trouble) == []


async def test_a_server_killed_and_back(postgres_ground: PostgresGround) -> None:
    server = postgres_ground.server
    async with open_store(postgres_ground.url) as store:
        await store.set_event("a", 3)
    async with running(Watched(postgres_ground.url)) as watched:
        await watched.has("a", "file", "default")
        server.stop()
        try:
            await watched.until(lambda: bool(watched.of(Trouble)))
            await asyncio.sleep(3)  # long enough for several tries
            assert watched.names == ["a", "file", "default"]
            assert watched.of(Recovered) == []
        finally:
            server.start()
        await watched.until(lambda: bool(watched.of(Recovered)))
        troubles = watched.of(Trouble)
        assert 1 <= len(troubles) <= 3  # cut off, refused, starting: each reason once, however many tries
        for trouble in troubles:
            assert isinstance(trouble, Trouble)
            assert trouble.what == "store"
            assert trouble.why.endswith("the policies read last stay in force")
            assert trouble.seconds
            assert "secret" not in trouble.why
        assert len(watched.of(PoliciesChanged)) == 1
        postgres_ground.sql("UPDATE dlq_event_config SET name = 'b'")
        await watched.has("b", "file", "default")
        assert len(watched.of(Recovered)) == 1


async def test_a_store_that_is_not_there_at_the_start(postgres: PrivatePostgres) -> None:
    url = postgres.fresh_database()
    postgres.stop()
    try:
        async with running(Watched(url)) as watched:
            await watched.until(lambda: bool(watched.of(Trouble)))
            assert watched.names == ["file", "default"]
            first = watched.said[0]
            assert isinstance(first, Trouble)
            assert first.why.endswith("only the policies of the configuration are in force until it was read")
            postgres.start()
            await watched.until(lambda: bool(watched.of(PoliciesChanged)))
            assert len(watched.of(Recovered)) == 1
            postgres.psql("INSERT INTO dlq_event_config VALUES (1, 'a', 3)", url)
            await watched.has("a", "file", "default")
    finally:
        with suppress(RuntimeError):
            postgres.start()


async def test_an_emptied_store_is_a_loss_and_not_an_empty_table(ground: Ground) -> None:
    async with open_store(ground.url) as store:
        await store.set_event("a", 3)
    async with running(Watched(ground.url)) as watched:
        await watched.has("a", "file", "default")
        match ground:
            case SqliteGround():
                ground.path.unlink()
            case PostgresGround():
                ground.sql("DROP TABLE dlq_event_config")
                # dropped with its trigger, so the next check is what sees it; or this
                ground.sql("NOTIFY deadletter_policies")
        await watched.until(lambda: bool(watched.of(Trouble)))
        await asyncio.sleep(2)  # long enough for several tries
        assert watched.names == ["a", "file", "default"]
        assert watched.of(Recovered) == []
        async with open_store(ground.url):
            pass
        if isinstance(ground, PostgresGround):
            ground.sql("CREATE TABLE IF NOT EXISTS dlq_event_config (id int, name text, max_retries int)")
        ground.sql("INSERT INTO dlq_event_config VALUES (1, 'b', 3)")
        await watched.has("b", "file", "default")


async def test_a_file_that_somebody_keeps_locked(sqlite_ground: SqliteGround) -> None:
    async with open_store(sqlite_ground.url) as store:
        await store.set_event("a", 3)
    async with running(Watched(sqlite_ground.url)) as watched:
        await watched.has("a", "file", "default")
        with closing(sqlite3.connect(sqlite_ground.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await watched.until(lambda: bool(watched.of(Trouble)))
            trouble = watched.said[-1]
            assert isinstance(trouble, Trouble)
            assert "is locked by somebody who writes to it" in trouble.why
            assert watched.names == ["a", "file", "default"]
            other.execute("UPDATE dlq_event_config SET name = 'b'")
            other.commit()
        await watched.has("b", "file", "default")
        assert len(watched.of(Recovered)) == 1
        assert len(watched.of(Trouble)) == 1


async def test_a_file_locked_at_the_start_only_delays_it(sqlite_ground: SqliteGround) -> None:
    sqlite_ground.path.parent.mkdir()
    with closing(sqlite3.connect(sqlite_ground.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with running(Watched(sqlite_ground.url)) as watched:
            await watched.until(lambda: bool(watched.of(Trouble)))
            other.rollback()
            await watched.until(lambda: bool(watched.of(Recovered)))
            assert watched.names == ["file", "default"]


async def test_our_own_mistake_is_said_and_survived(
    sqlite_ground: SqliteGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    @asynccontextmanager
    async def fragile(url: str, *, prepare: bool) -> AsyncIterator[object]:
        if broken:
            raise KeyError("nobody thought of this")
        async with open_store(url, prepare=prepare) as store:
            yield store

    monkeypatch.setattr(room, "open_store", fragile)
    async with running(Watched(sqlite_ground.url)) as watched:
        await watched.until(lambda: bool(watched.of(Trouble)))
        trouble = watched.said[0]
        assert isinstance(trouble, Trouble)
        assert "a mistake of ours, please report it: KeyError: 'nobody thought of this'" in trouble.why
        broken = False
        await watched.until(lambda: bool(watched.of(Recovered)))


async def test_one_who_cannot_follow_does_not_keep_it_from_the_others(sqlite_ground: SqliteGround) -> None:
    def broken(_policies: Policies) -> None:
        raise ValueError("cannot")

    heard: list[Policies] = []
    watched = Watched(sqlite_ground.url)
    watched.source.on_change += [broken, heard.append]
    async with running(watched):
        await watched.until(lambda: bool(watched.said))
        sqlite_ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 3)")
        await watched.until(lambda: bool(heard))
        assert (
            Trouble(what="policies", why="new policies could not be taken over: ValueError: cannot")
            in watched.said
        )
        sqlite_ground.sql("DELETE FROM dlq_event_config")
        await watched.has("file", "default")
        assert len(heard) == 2


async def test_without_a_store_it_waits_and_says_nothing(tmp_path: Path) -> None:
    async with running(Watched(None)) as watched:
        await asyncio.sleep(0.1)
        assert watched.said == []
        assert watched.names == ["file", "default"]
