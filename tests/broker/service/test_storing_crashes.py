"""Letters on their way into the store when the service is killed or ended, or the store goes away.

The claim each time: every letter is in the store or in its queue, and no list shows one twice.

About `service.storing.storekeeper`, `service.storing.store_lines`, `service.storing.forgetting`.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import letters
from tests.postgres import PrivatePostgres
from tests.serving import ACK, Application, DeafPlug, Served, plugged_in, served
from tests.storekeeping import bodies, dying, listed, settings, stored, until_empty, until_listed

from deadletter.amqp.address import parse_addresses
from deadletter.core.letter import names


async def parked(app: Application, vhost: Vhost, home: Path, count: int) -> set[bytes]:
    """So many letters in deadletter.parked, parked by a service that brings none into the store."""
    made = letters("n", count)
    await dying(app, "orders")
    before = settings(f"sqlite:///{home / 'other.db'}").replace("ingest = true", "ingest = false")
    with served(vhost, home / "before", before) as (one,):
        await app.publish("", "orders", made)
        async with asyncio.timeout(120):
            while await app.depth(names.PARKED) < count:  # noqa: ASYNC110 -- the broker tells nobody
                await asyncio.sleep(0.05)
        assert one.end() == 0
    return {one.body for one in made}


async def assert_each_once(url: str, made: set[bytes]) -> None:
    found = await bodies(url)
    assert set(found) == made, "nothing lost"
    assert set(found.values()) == {1}, "nothing twice"


class DeafToAcks(DeafPlug):
    """Everything is committed, and stays in its queue."""

    method = ACK


@pytest.mark.slow
@pytest.mark.kills
async def test_killed_between_commit_and_ack(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """Three times: what is committed is known again, and changes nothing."""
    (address,) = parse_addresses(vhost.url)
    async with DeafToAcks(address) as plug, Application(vhost.url) as app:
        made = await parked(app, vhost, tmp_path, 300)
        for _ in range(3):
            with served(plugged_in(vhost, plug), tmp_path, settings(url), start=False) as (one,):
                one.start(ready=False)  # the plug needs the event loop
                await until_listed(url, lambda rows: len(rows) == 300)
                one.kill()
            async with asyncio.timeout(60):
                while await app.depth(names.PARKED) < 300:  # noqa: ASYNC110 -- the broker tells nobody
                    await asyncio.sleep(0.05)
        with served(vhost, tmp_path, settings(url)) as (one,):
            await until_empty(app, names.PARKED)
            await app.until(lambda: stored(one, "again") == 300, 120, "all of them were known")
            assert (stored(one, "new"), stored(one, "copy")) == (0, 0)
        assert {row.copies for row in await listed(url)} == {0}
        await assert_each_once(url, made)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_killed_twenty_five_times(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """At random moments of a life in which it parks letters and brings them into the store."""
    chance = random.Random(13)
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        made: set[bytes] = set()
        with served(vhost, tmp_path, settings(url, "batch = 20\n")) as (one,):
            for kill in range(25):
                some = letters(f"k{kill}", 60)
                made |= {each.body for each in some}
                await app.publish("", "orders", some)
                if kill % 2:
                    one.until_ready()
                await asyncio.sleep(chance.random() * 0.6)
                one.kill()
                one.start(ready=False)
            one.until_ready()
            for queue in ("orders", "orders.dlq", names.PARKED):
                await until_empty(app, queue)
            assert one.end() == 0
        for queue in ("orders", "orders.dlq", names.PARKED):
            assert await app.depth(queue) == 0
        await assert_each_once(url, made)


@pytest.mark.slow
async def test_an_orderly_end_in_the_middle(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """What the store is taking at that moment is acked, so nothing comes again; not even letters of others,
    which nothing tells apart when they do."""
    async with Application(vhost.url) as app:
        await app.declare("errors")
        made = letters("n", 1500)
        await app.publish("", "errors", made)
        more = 'batch = 50\n[[desk.queues]]\nname = "errors"\n'
        with served(vhost, tmp_path, settings(url, more), start=False) as (one,):
            for _ in range(3):
                one.start()
                await app.until(lambda: stored(one, "new") > 0, 120, "it is at work")
                assert one.end() == 0
            one.start()
            await until_empty(app, "errors")
            assert one.end() == 0
        assert await app.depth("errors") == 0
        assert {row.copies for row in await listed(url)} == {0}
        await assert_each_once(url, {each.body for each in made})


@pytest.mark.slow
async def test_two_instances_share_the_work(vhost: Vhost, tmp_path: Path, postgres: PrivatePostgres) -> None:
    url = postgres.fresh_database()
    async with Application(vhost.url) as app:
        await app.declare("errors")
        made = letters("n", 4000)
        more = 'batch = 50\n[[desk.queues]]\nname = "errors"\nretention = { letters = 3500 }\n'
        with served(vhost, tmp_path, settings(url, more), instances=2) as (one, other):
            await app.publish("", "errors", made)
            await until_empty(app, "errors", 300)
            await app.until(lambda: stored(one, "new") + stored(other, "new") == 4000, 120, "all of them")
            assert min(stored(one, "new"), stored(other, "new")) > 100
            await until_listed(url, lambda rows: len(rows) <= 3500)
            await asyncio.sleep(11)  # another round of retention of both
        tallied = "SELECT sum(letters), sum(bytes) FROM deadletter_tallies"
        counted = "SELECT count(*), sum(bytes) FROM deadletter_letters WHERE copy_of IS NULL"
        assert postgres.psql(tallied, url) == postgres.psql(counted, url)
        assert postgres.psql("SELECT count(*) FROM deadletter_letters", url) == "3500"


# -- the store is away ---------------------------------------------------------------------------------------
async def until_told(app: Application, one: Served, said: str) -> None:
    """That letters wait, and why; the service is ready, and goes on with everything else."""
    await app.until(lambda: said in _letters_trouble(one), 120, f"{said}: {one.said()}")
    health = one.get("/health/ready")
    assert health["ok"]
    assert any(note.startswith("store:letters: ") for note in health["notes"])


def _letters_trouble(one: Served) -> str:
    troubles = one.get("/api/status")["troubles"]
    return next((str(t["why"]) for t in troubles if t["what"] == "store:letters"), "")


async def until_waiting(app: Application, count: int) -> None:
    async with asyncio.timeout(120):
        while await app.depth(names.PARKED) != count:  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.1)


async def away_and_back(
    app: Application, one: Served, url: str, *, said: str, take_away: object, bring_back: object
) -> None:
    assert callable(take_away)
    assert callable(bring_back)
    first = letters("before", 50)
    await app.publish("", "orders", first)
    await until_listed(url, lambda rows: len(rows) == 50)
    take_away()
    second = letters("while", 300)
    await app.publish("", "orders", second)
    await until_told(app, one, said)
    await until_waiting(app, 300)  # nobody has them in hand: whoever looks there sees them
    bring_back()
    await until_listed(url, lambda rows: len(rows) == 350)
    await until_empty(app, names.PARKED)
    await app.until(lambda: not _letters_trouble(one), 120, "it works again")
    await assert_each_once(url, {each.body for each in (*first, *second)})
    assert one.end() == 0
    assert await app.depth(names.PARKED) == 0


@pytest.mark.slow
async def test_postgresql_restarted(vhost: Vhost, tmp_path: Path, postgres: PrivatePostgres) -> None:
    url = postgres.fresh_database()
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with served(vhost, tmp_path, settings(url)) as (one,):
            try:
                await away_and_back(
                    app, one, url, said="does not answer", take_away=postgres.stop, bring_back=postgres.start
                )
            finally:
                with suppress(Exception):
                    postgres.start()


@pytest.mark.slow
async def test_a_locked_file(vhost: Vhost, tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with (
            served(vhost, tmp_path, settings(f"sqlite:///{path}")) as (one,),
            closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other,
        ):
            await away_and_back(
                app,
                one,
                f"sqlite:///{path}",
                said="is locked by somebody",
                take_away=lambda: other.execute("BEGIN IMMEDIATE"),
                bring_back=lambda: other.execute("ROLLBACK"),
            )


@pytest.mark.slow
async def test_a_full_disk(vhost: Vhost, tmp_path: Path) -> None:
    """A limit on the size of files does the same to SQLite."""
    path = tmp_path / "letters.db"
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with served(vhost, tmp_path, settings(f"sqlite:///{path}")) as (one,):
            log = path.with_name(path.name + "-wal")

            def limit(most: int) -> None:
                resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

            await away_and_back(
                app,
                one,
                f"sqlite:///{path}",
                said="cannot be used",
                take_away=lambda: limit(min(log.stat().st_size, 4096)),
                bring_back=lambda: limit(resource.RLIM_INFINITY),
            )


@pytest.mark.slow
async def test_a_file_that_somebody_moved_away(vhost: Vhost, tmp_path: Path) -> None:
    """What would be committed to a file without a name would be lost with the process."""
    path, aside = tmp_path / "letters.db", tmp_path / "aside.db"
    async with Application(vhost.url) as app:
        await dying(app, "orders")
        with served(vhost, tmp_path, settings(f"sqlite:///{path}")) as (one,):
            await app.publish("", "orders", letters("before", 50))
            await until_listed(f"sqlite:///{path}", lambda rows: len(rows) == 50)
            path.rename(aside)
            await app.publish("", "orders", letters("while", 300))
            await until_told(app, one, "is gone")
            await until_waiting(app, 300)
            assert one.end() == 0
        assert await app.depth(names.PARKED) == 300


@pytest.mark.slow
async def test_one_letter_that_the_store_does_not_take(vhost: Vhost, tmp_path: Path) -> None:
    """It stays in its queue, and is named; its neighbours go."""
    path = tmp_path / "letters.db"
    url = f"sqlite:///{path}"
    async with Application(vhost.url) as app:
        await app.declare("errors")
        with served(vhost, tmp_path, settings(url, '[[desk.queues]]\nname = "errors"\n')) as (one,):
            with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")  # who reads first is refused when somebody wrote meanwhile
                other.execute(
                    "CREATE TRIGGER picky BEFORE INSERT ON deadletter_letters WHEN NEW.bytes = 7 "
                    "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
                )
                other.execute("COMMIT")
            await app.publish("", "errors", letters("n", 100) + letters("wrong", 1))
            await until_listed(url, lambda rows: len(rows) == 100)
            await app.until(lambda: "not this one" in one.said(), 120, "it is named")
            assert not _letters_trouble(one)
            assert one.end() == 0
        assert await app.depth("errors") == 1
