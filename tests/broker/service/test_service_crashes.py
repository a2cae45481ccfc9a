"""The service when it is killed, when it is several, and when broker or store go away under it.

The claim each time: every letter is somewhere, and where there are two of one they carry the same id.

About `service.running`, `service.queue_loop`, `service.guarding.guarded_release`.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.brokers import Vhost, call
from tests.letters import headers_of, letter, letters
from tests.postgres import private_postgres
from tests.serving import Application, DeafPlug, Served, plugged_in, served

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.core.letter import names
from deadletter.core.letter.message import RawMessage
from deadletter.testing.cuttable_line import Plug

UNGUARDED = """
[guards]
require_consumers = false
[guards.breaker]
enabled = false
"""
AGED_S = 6.0
WATCH = '[[watches]]\ndlq = "*.dlq"\n'


def policy(retries: int, *delays: str) -> str:
    listed = ", ".join(f'"{delay}"' for delay in delays)
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = [{listed}] }}\n'


def bodies(made: list[RawMessage]) -> set[bytes]:
    return {one.body for one in made}


def ids_seen(app: Application) -> dict[bytes, set[str]]:
    """The ids under which each letter came home; a first delivery has none."""
    ids: dict[bytes, set[str]] = defaultdict(set)
    for _, delivery, _ in app.deliveries:
        if isinstance(found := headers_of(delivery).get(names.ID), str):
            ids[delivery.message.body].add(found)
    return ids


async def fill_dlq(app: Application, origin: str, made: list[RawMessage]) -> None:
    """Let these die in `origin` before anybody looks after its dead-letter queue."""
    channel = await app.connection.channel()
    await channel.qos(500)
    tag = await channel.consume(origin, lambda d: channel.reject(d.tag, requeue=False), lambda: None)
    await app.publish("", origin, made)
    await until_depth(app, f"{origin}.dlq", len(made))
    await channel.cancel(tag)
    await channel.close()


async def until_depth(app: Application, queue: str, least: int, most: int | None = None) -> None:
    async with asyncio.timeout(60):
        while not least <= await app.depth(queue) <= (most if most is not None else 10**9):  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.02)


# -- kill -9 -------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.timeout(600)
async def test_killed_forty_times_with_a_thousand_letters_in_hand(vhost: Vhost, tmp_path: Path) -> None:
    """A quorum DLQ that somebody declared with defaults: RabbitMQ 4 destroys after 20 lost deliveries."""
    made = letters("n", 1000)
    settings = policy(5, "500ms") + WATCH + UNGUARDED
    (address,) = parse_addresses(vhost.url)
    async with DeafPlug(address) as plug, Application(vhost.url) as app:
        await app.with_dlq("orders")
        await fill_dlq(app, "orders", made)
        with served(plugged_in(vhost, plug), tmp_path, settings, start=False) as (one,):
            one.write(_prefetch_1000(one) + settings)
            in_hand: list[int] = []
            for _ in range(40):
                one.start(ready=False)
                in_hand.append(1000 - await _when_calm(app, "orders.dlq", 1000))
                one.kill()
                await until_depth(app, "orders.dlq", 1000)
            assert in_hand[:5] == [1000] * 5
            assert min(in_hand) >= 20, "it takes fewer when letters were delivered often, but it takes some"
        with served(vhost, tmp_path, settings):
            await app.consume("orders", lambda _d, _times: True, keep=True)
            await app.until(lambda: len(_done(app, 1)) == 1000, 120, "all of them at home")
        _check_home(app, made, returns=1)
        assert set(app.seen.values()) == {1}


async def _when_calm(app: Application, queue: str, full: int) -> int:
    """How many are left in the queue when somebody has taken what they want."""
    async with asyncio.timeout(60):
        before, left = full, full
        while left == full or left != before:
            await asyncio.sleep(0.2)
            before, left = left, await app.depth(queue)
    return left


def _prefetch_1000(one: Served) -> str:
    return f'[serve]\nlisten = "127.0.0.1:{one.port}"\nname = "{one.name}"\nsurvey = "1s"\nprefetch = 1000\n'


@pytest.mark.slow
async def test_killed_at_random_moments(vhost: Vhost, tmp_path: Path) -> None:
    """While it takes, delays and releases; letters fail twice and then succeed."""
    made = letters("n", 3000)
    dice = random.Random(11)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda d, _times: _attempt(d) >= 2, keep=True)
        with served(vhost, tmp_path, policy(5, "500ms", "1s") + WATCH + UNGUARDED, start=False) as (one,):
            for number in range(12):
                await asyncio.to_thread(one.start)
                await app.publish("", "orders", made[number * 250 : (number + 1) * 250])
                await asyncio.sleep(dice.uniform(0.1, 1.2))
                one.kill()
            await asyncio.to_thread(one.start)
            await app.until(lambda: len(_done(app, 2)) == 3000, 120, "the second return of each")
        _check_home(app, made, returns=2)


def _attempt(delivery: Delivery) -> int:
    found = headers_of(delivery).get(names.ATTEMPT, 0)
    assert isinstance(found, int)
    return found


def _done(app: Application, attempt: int) -> set[bytes]:
    return {d.message.body for _, d, _ in app.deliveries if _attempt(d) == attempt}


def _check_home(app: Application, made: list[RawMessage], *, returns: int) -> None:
    """Each came home with every attempt; copies of one carry one id."""
    for attempt in range(1, returns + 1):
        assert _done(app, attempt) == bodies(made), f"attempt {attempt}"
    assert all(len(ids) == 1 for ids in ids_seen(app).values()), "copies of one letter differ in their id"


# -- several instances ---------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("instances", [2, 3, 5])
async def test_several_instances_handle_each_letter_once(
    vhost: Vhost, tmp_path: Path, instances: int
) -> None:
    made = letters("n", 2000)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _d, times: times > 2)
        settings = policy(5, "300ms", "1s") + WATCH + UNGUARDED
        with served(vhost, tmp_path, settings, instances=instances) as all_of_them:
            await app.publish("", "orders", made)
            await app.until(lambda: app.seen.total() >= 6000, 120, "three deliveries of each")
            await until_depth(app, "orders.dlq", 0, 0)
            shares = [_released(one) for one in all_of_them]
        assert {body for _, body in app.seen} == bodies(made)
        assert set(app.seen.values()) == {3}
        assert sum(shares) == 4000
        assert sum(share > 0 for share in shares) > 1, f"one did all the work: {shares}"


def _released(one: Served) -> int:
    """How many letters it says it sent home, when it has said everything."""
    told, before = -1, -2
    until = time.monotonic() + 20
    while told != before and time.monotonic() < until:
        time.sleep(1.2)
        lines = [line for line in one.metrics().splitlines() if 'outcome="released"' in line]
        before, told = told, sum(int(float(line.rpartition(" ")[2])) for line in lines)
    return told


@pytest.mark.slow
async def test_one_of_three_is_killed_and_the_others_take_over(vhost: Vhost, tmp_path: Path) -> None:
    made = letters("n", 3000)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda d, _times: _attempt(d) >= 2, keep=True)
        settings = policy(5, "500ms", "1s") + WATCH + UNGUARDED
        with served(vhost, tmp_path, settings, instances=3) as (first, _, _):
            await app.publish("", "orders", made[:1500])
            await app.until(lambda: len(_done(app, 1)) > 300, 120, "the first returns")
            first.kill()
            await app.publish("", "orders", made[1500:])
            await app.until(lambda: len(_done(app, 2)) == 3000, 120, "the second return of each")
        _check_home(app, made, returns=2)


# -- the broker goes away ------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_the_broker_goes_and_comes_back(vhost: Vhost, tmp_path: Path, how: str) -> None:
    made = letters("n", 6000)
    settings = policy(5, "1s") + WATCH + UNGUARDED
    with served(vhost, tmp_path, settings) as (one,):
        # A quorum queue that is a second old does not survive kill -9 of its only node (seen on 3.10.8: it
        # stays a follower in term 0 for ever). Not what this is about.
        await asyncio.sleep(AGED_S)
        assert one.end() == 0
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await asyncio.sleep(AGED_S)
            await fill_dlq(app, "orders", made)
        await asyncio.to_thread(one.start)
        await asyncio.sleep(0.7)  # letters are in the queue, in its hands, in the level
        if how == "kill":
            await asyncio.to_thread(vhost.broker.kill)
        await asyncio.to_thread(vhost.broker.restart)
        async with Application(vhost.url) as app:
            await app.consume("orders", lambda _d, _times: True, keep=True)
            await app.until(lambda: len(_done(app, 1)) == 6000, 120, "each at home")
            _check_home(app, made, returns=1)
        await asyncio.to_thread(one.until_ready)
        assert one.end() == 0


@pytest.mark.slow
async def test_the_line_is_cut_again_and_again(vhost: Vhost, tmp_path: Path) -> None:
    """Both connections of the service at once, in the middle of everything."""
    made = letters("n", 4000)
    (address,) = parse_addresses(vhost.url)
    async with Plug(address) as plug, Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda d, _times: _attempt(d) >= 1, keep=True)
        with served(
            plugged_in(vhost, plug), tmp_path, policy(5, "500ms") + WATCH + UNGUARDED, start=False
        ) as (one,):
            await asyncio.to_thread(one.start)
            for number in range(8):
                await app.publish("", "orders", made[number * 500 : (number + 1) * 500])
                await asyncio.sleep(0.2)
                plug.cut()
            await app.until(lambda: len(_done(app, 1)) == 4000, 120, "each at home")
            assert one.process.poll() is None
        assert plug.cuts == 8
        _check_home(app, made, returns=1)


@pytest.mark.slow
async def test_only_the_publishing_connection_is_cut(vhost: Vhost, tmp_path: Path) -> None:
    made = letters("n", 4000)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda d, _times: _attempt(d) >= 1, keep=True)
        with served(vhost, tmp_path, policy(5, "500ms") + WATCH + UNGUARDED) as (one,):
            await app.publish("", "orders", letters("warm", 10))
            cut = 0
            for number in range(3):
                await app.publish("", "orders", made[number * 1000 : (number + 1) * 1000])
                cut += await asyncio.to_thread(_cut_publishing, vhost)
            await app.publish("", "orders", made[3000:])
            assert cut == 3
            await app.until(lambda: len(_done(app, 1)) == 4010, 120, "each at home")
            assert one.process.poll() is None
        assert bodies(made) < _done(app, 1)
        assert all(len(ids) == 1 for ids in ids_seen(app).values())


def _cut_publishing(vhost: Vhost) -> int:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for found in call(vhost.broker, "GET", "vhosts", vhost.name, "connections"):
            name = str(found.get("user_provided_name", ""))
            if name.startswith("dlq serve") and name.endswith(": publish"):
                call(vhost.broker, "DELETE", "connections", found["name"])
                return 1
        time.sleep(0.2)
    return 0


# -- the store goes away -------------------------------------------------------------------------------------
async def test_postgresql_is_stopped_and_letters_go_on(vhost: Vhost, tmp_path: Path) -> None:
    """The row for this key says two retries, the file none: the row holds also when nobody can read it."""
    with private_postgres() as postgres:
        async with Application(vhost.url) as app:
            await _shop(app)
            settings = f'[store]\nurl = "{postgres.url}"\n' + policy(0, "300ms") + WATCH + UNGUARDED
            with served(vhost, tmp_path, settings) as (one,):
                postgres.psql(
                    "INSERT INTO dlq_event_config (id, name, max_retries) VALUES (1, 'order.new', 2)"
                )
                await _until_in_force(app)
                postgres.stop()
                await app.publish("shop", "order.new", letters("without", 200))
                await app.until(lambda: _times(app, "without") == 600, 120, "two returns without a store")
                await app.until(lambda: _parked(app, "without") == 200, 120, "parked after two")
                await app.publish("shop", "order.old", [letter(b"unknown")])
                await app.until(lambda: _parked(app, "unknown") == 1, 120, "the file still says none")
                postgres.start()
                postgres.psql("UPDATE dlq_event_config SET max_retries = 1")
                await _until_in_force(app, deliveries=2, name="again")
                assert one.end() == 0


async def test_sqlite_is_locked_and_removed_and_letters_go_on(vhost: Vhost, tmp_path: Path) -> None:
    path = tmp_path / "policies.db"
    async with Application(vhost.url) as app:
        await _shop(app)
        settings = f'[store]\nurl = "sqlite:///{path}"\n' + policy(0, "300ms") + WATCH + UNGUARDED
        with served(vhost, tmp_path, settings) as (one,):
            with sqlite3.connect(path) as mine:
                mine.execute(
                    "INSERT INTO dlq_event_config (id, name, max_retries) VALUES (1, 'order.new', 2)"
                )
            mine.close()
            await _until_in_force(app)
            locking = sqlite3.connect(path, isolation_level=None)
            locking.execute("BEGIN EXCLUSIVE")
            await app.publish("shop", "order.new", letters("locked", 200))
            await app.until(lambda: _parked(app, "locked") == 200, 120, "two returns with a locked store")
            assert _times(app, "locked") == 600
            locking.close()
            await asyncio.to_thread(_remove, path)
            await app.publish("shop", "order.new", letters("removed", 200))
            await app.until(lambda: _parked(app, "removed") == 200, 120, "two returns without a store")
            assert _times(app, "removed") == 600
            assert one.process.poll() is None


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


async def _shop(app: Application) -> None:
    await app.channel.declare_exchange("shop", "topic")
    await app.with_dlq("orders")
    await app.channel.bind_queue("orders", "shop", "#")
    await app.consume("orders", lambda _d, _times: False)
    await app.declare(names.PARKED)
    await app.consume(names.PARKED, lambda _d, _times: True)


def _times(app: Application, prefix: str) -> int:
    return _count(app, "orders", prefix)


def _parked(app: Application, prefix: str) -> int:
    return _count(app, names.PARKED, prefix)


def _count(app: Application, where: str, prefix: str) -> int:
    start = prefix.encode()
    return sum(
        times for (queue, body), times in app.seen.items() if queue == where and body.startswith(start)
    )


async def _until_in_force(app: Application, *, deliveries: int = 3, name: str = "row") -> None:
    """Until a letter of this key is delivered so often before it is parked: so the row is in force."""
    for number in range(40):
        body = f"{name}{number}".encode()
        await app.publish("shop", "order.new", [letter(body)])
        await app.until(lambda body=body: app.seen[names.PARKED, body] == 1, 30, "parked")  # type: ignore[misc]
        if app.seen["orders", body] == deliveries:
            return
        await asyncio.sleep(0.25)
    raise AssertionError("the row did not come into force")
