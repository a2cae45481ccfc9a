"""Two services on one vhost, each with a SQLite file of its own: letters are not divided between the files,
none is lost, and none is in both, whatever ends the one that stores them.

About `service.storing.store_lease`, `service.storing.store_lines`, `service.storing.storekeeper`,
`broker.lease`.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.brokers import Vhost, call
from tests.letters import letters
from tests.postgres import PrivatePostgres
from tests.serving import Application, Served
from tests.storekeeping import INGEST, bodies, settings, stored, until_empty

from deadletter.core.letter import names
from deadletter.errors import StoreError
from deadletter.store.preparing import migrate


class Two(NamedTuple):
    """`one` stores letters, `other` waits."""

    one: Served
    other: Served


def url_of(service: Served) -> str:
    return f"sqlite:///{service.home / 'store.db'}"


def holds(service: Served, vhost: Vhost) -> bool:
    return f'deadletter_lease_held{{lease="store@{vhost.name}"}} 1' in service.metrics()


def waits(service: Served, vhost: Vhost) -> str:
    """What it says of whoever stores the letters; empty: it stores them."""
    troubles = service.get("/api/status")["troubles"]
    return next((str(one["why"]) for one in troubles if one["what"] == f"store:lease@{vhost.name}"), "")


def one_service(vhost: Vhost, home: Path, name: str, *, file_of: Served | None = None) -> Served:
    """`file_of`: with the store of that one."""
    service = Served(vhost, home, INGEST, name=name)
    service.write(
        f'[store]\nurl = "{url_of(file_of or service)}"\n'
        f'[serve]\nlisten = "127.0.0.1:{service.port}"\nname = "{name}"\nsurvey = "1s"\n'
        f'heartbeat = "2s"\n{INGEST}batch = 20\n[[desk.queues]]\nname = "errors"\n'
    )
    return service


@asynccontextmanager
async def two(vhost: Vhost, home: Path, app: Application) -> AsyncIterator[Two]:
    await app.declare("errors")
    found = Two(one_service(vhost, home, "one"), one_service(vhost, home, "other"))
    try:
        found.one.start()
        await app.until(lambda: holds(found.one, vhost), 120, "the first one holds the lease")
        found.other.start()
        await app.until(lambda: bool(waits(found.other, vhost)), 120, "the second one says that it waits")
        yield found
    finally:
        for service in found:
            service.close()


async def in_files(services: Two) -> Counter[bytes]:
    """How often each body is in a file."""
    total = Counter[bytes]()
    for service in services:
        try:
            total += await bodies(url_of(service))
        except StoreError:
            continue  # nobody has made that file yet
    return total


async def assert_each_in_one(services: Two, made: set[bytes]) -> None:
    found = await in_files(services)
    assert found.keys() == made, "nothing is lost"
    assert {body: times for body, times in found.items() if times > 1} == {}, "nothing is in both files"


async def until_all_are_stored(services: Two, made: set[bytes]) -> None:
    async with asyncio.timeout(120):
        while (await in_files(services)).keys() != made:  # noqa: ASYNC110 -- a file tells nobody
            await asyncio.sleep(0.2)


@contextmanager
def locked(service: Served) -> Iterator[sqlite3.Connection]:
    """Its file: a batch of letters is in hand, and waits for the lock."""
    path = service.home / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as held:
        held.execute("BEGIN IMMEDIATE")
        yield held


def close_connections(vhost: Vhost, service: Served) -> None:
    """As an operator does it."""
    for one in call(vhost.broker, "GET", "vhosts", vhost.name, "connections") or ():
        if str(one.get("user_provided_name", "")).startswith(f"dlq serve {service.name}:"):
            call(vhost.broker, "DELETE", "connections", one["name"])


async def test_one_stores_all_of_them_and_the_other_says_so(vhost: Vhost, tmp_path: Path) -> None:
    """And takes over when the first is killed."""
    async with Application(vhost.url) as app, two(vhost, tmp_path, app) as services:
        one, other = services
        first, second = letters("first", 200), letters("second", 200)
        await app.publish("", "errors", first)
        await app.until(lambda: stored(one, "new") == 200, 120, "all of them")
        assert await bodies(url_of(one)) == Counter(each.body for each in first)
        said = waits(other, vhost)
        assert f"letters of vhost '{vhost.name}' are stored by dlq serve one" in said
        assert f"another store than ours ({url_of(one)} on " in said
        assert ", since " in said
        health = other.get("/health/ready")
        assert health["ok"]
        assert f"store:lease@{vhost.name}: {said}" in health["notes"]
        assert f'deadletter_trouble{{what="store:lease@{vhost.name}"}} 1' in other.metrics()
        assert "are stored by dlq serve one" in other.said()
        one.kill()
        await app.publish("", "errors", second)
        await app.until(lambda: stored(other, "new") == 200, 120, "the other took over")
        assert not waits(other, vhost)
        await until_empty(app, "errors")
        one.start()
        await app.until(lambda: "are stored by dlq serve other" in waits(one, vhost), 120, "it waits now")
        await assert_each_in_one(services, {each.body for each in (*first, *second)})


async def test_a_holder_that_was_stopped_and_wakes_up(vhost: Vhost, tmp_path: Path) -> None:
    """It has letters in a transaction when it is stopped; meanwhile the other has stored them."""
    async with Application(vhost.url) as app, two(vhost, tmp_path, app) as services:
        one, other = services
        made = letters("n", 30)
        with locked(one) as lock:
            await app.publish("", "errors", made)
            await until_in_hand(app, vhost, 30)
            one.process.send_signal(signal.SIGSTOP)
            await app.until(lambda: stored(other, "new") == 30, 120, "the other took over")
            lock.execute("ROLLBACK")
        one.process.send_signal(signal.SIGCONT)
        await app.until(lambda: bool(waits(one, vhost)), 120, "it knows that it lost the lease")
        more = letters("more", 30)
        await app.publish("", "errors", more)
        await app.until(lambda: stored(other, "new") == 60, 120, "it goes on")
        await assert_each_in_one(services, {each.body for each in (*made, *more)})


async def test_an_operator_closes_the_connections_of_the_holder(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app, two(vhost, tmp_path, app) as services:
        one, other = services
        made = letters("n", 30)
        with locked(one) as lock:
            await app.publish("", "errors", made)
            await until_in_hand(app, vhost, 30)
            async with asyncio.timeout(60):
                while not holds(other, vhost):
                    await asyncio.to_thread(close_connections, vhost, one)
                    await asyncio.sleep(0.05)
            lock.execute("ROLLBACK")
        await app.until(lambda: stored(other, "new") == 30, 120, "the other took over")
        await app.until(lambda: bool(waits(one, vhost)), 120, "it knows that it lost the lease")
        await assert_each_in_one(services, {each.body for each in made})


@pytest.mark.slow
@pytest.mark.kills
async def test_the_broker_is_restarted(vhost: Vhost, tmp_path: Path) -> None:
    """Whoever of them is first afterwards."""
    made = letters("n", 60)
    async with Application(vhost.url) as app, two(vhost, tmp_path, app) as services:
        with locked(services.one) as lock:
            await app.publish("", "errors", made)
            await until_in_hand(app, vhost, 60)
            await asyncio.to_thread(vhost.broker.restart)
            lock.execute("ROLLBACK")
        async with Application(vhost.url) as again:
            await until_all_are_stored(services, {each.body for each in made})
            await until_empty(again, "errors")
            await assert_each_in_one(services, {each.body for each in made})


async def test_the_queue_of_the_lease_is_deleted(vhost: Vhost, tmp_path: Path) -> None:
    """By somebody who tidies up: letters in hand are stored by one of the two."""
    async with Application(vhost.url) as app, two(vhost, tmp_path, app) as services:
        made = letters("n", 300)
        await app.publish("", "errors", made[:150])
        ctl = vhost.broker.rabbitmqctl  # over HTTP nobody may
        await asyncio.to_thread(ctl, "-p", vhost.name, "delete_queue", "deadletter.lease.store")
        await app.publish("", "errors", made[150:])
        await until_all_are_stored(services, {each.body for each in made})
        await until_empty(app, "errors")
        await assert_each_in_one(services, {each.body for each in made})


async def test_a_store_that_never_worked_keeps_the_letters_from_nobody(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.declare("errors")
        one, other = one_service(vhost, tmp_path, "one"), one_service(vhost, tmp_path, "other")
        await migrate(url_of(one))
        try:
            with locked(one):
                one.start()
                await app.until(lambda: "store:letters" in one.said(), 120, "it cannot write")
                other.start()
                await app.publish("", "errors", letters("n", 50))
                await app.until(lambda: stored(other, "new") == 50, 120, "the other stores them")
        finally:
            one.close()
            other.close()


async def test_one_file_for_two_services(vhost: Vhost, tmp_path: Path) -> None:
    """The second one says that it is the same store, and takes over."""
    async with Application(vhost.url) as app:
        await app.declare("errors")
        one = one_service(vhost, tmp_path, "one")
        other = one_service(vhost, tmp_path, "other", file_of=one)
        try:
            one.start()
            await app.until(lambda: holds(one, vhost), 120, "the first one holds the lease")
            other.start()
            await app.until(lambda: "the same store as ours" in waits(other, vhost), 120, other.said())
            made = letters("n", 50)
            await app.publish("", "errors", made)
            await app.until(lambda: stored(one, "new") == 50, 120, "it stores them")
            assert one.end() == 0
            await app.publish("", "errors", letters("m", 50))
            await app.until(lambda: stored(other, "new") == 50, 120, "it took over")
            assert sum((await bodies(url_of(one))).values()) == 100
        finally:
            one.close()
            other.close()


async def test_with_postgresql_nobody_waits(vhost: Vhost, tmp_path: Path, postgres: PrivatePostgres) -> None:
    text = settings(postgres.fresh_database())
    async with Application(vhost.url) as app:
        services = [Served(vhost, tmp_path, text, name=name) for name in ("one", "other")]
        try:
            for service in services:
                service.start()
            for service in services:
                assert "lease:store" not in service.metrics()
                assert not waits(service, vhost)
            assert vhost.get("queues", "deadletter.lease.store") is None
            async with asyncio.timeout(120):  # who is ready begins to consume a moment later
                while (await app.channel.declare_queue(names.PARKED, passive=True)).consumer_count < 2:  # noqa: ASYNC110 -- the broker tells nobody
                    await asyncio.sleep(0.1)
        finally:
            for service in services:
                service.close()


async def until_in_hand(app: Application, vhost: Vhost, least: int) -> None:
    """So many of `errors` are with the service: the queue has no others to give."""
    async with asyncio.timeout(60):
        while True:
            told = vhost.get("queues", "errors") or {}
            if int(told.get("messages_unacknowledged") or 0) >= least and not await app.depth("errors"):
                return
            await asyncio.sleep(0.1)
