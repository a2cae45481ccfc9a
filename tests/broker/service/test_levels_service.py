"""The processor with numbered delays, by the names of its document: what it promises, on a real broker.

The application's queues are declared as the document has them: classic, durable, dead-lettering into
`retry-exchange` with `retry-routing-key`. Everything else the service declares itself.

About `service.policies_in_force`, `service.running`, `core.layouts.levels`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.postbox import Post
from tests.postgres import private_postgres
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message, names
from deadletter.core.letter.message import RawMessage, View

EXCHANGE = "test-retry-exchange"
QUEUES = {
    "test-pass-queue": "rk.test.pass",
    "test-fail-queue": "rk.test.fail",
    "test-fail-pass-queue": "rk.test.fail.pass",
}
QUICK = ("200ms", "400ms", "600ms")
TABLE = "CREATE TABLE dlq_event_config (id int NOT NULL PRIMARY KEY, name varchar(100), max_retries integer)"
CLOCK_S = 0.003
"""Times of the broker and ours are whole milliseconds that were rounded."""

Rows = Sequence[tuple[int, str | None, int | None]]


def settings(*, delays: Sequence[str] = QUICK, more: str = "") -> str:
    told = ", ".join(f'"{delay}"' for delay in delays)
    return f'[[watches]]\nlayout = "levels"\ndelays = [{told}]\n{more}'


def in_file(*retries: tuple[str, int]) -> str:
    """The policies of the configuration file."""
    return "".join(
        f'[[policies]]\nname = "{key}"\nmatch = {{ routing_key = "{key}" }}\nretries = {count}\n'
        for key, count in retries
    )


def sql(one: Served, *statements: str, rows: Rows = ()) -> None:
    """Somebody else writes the table, with plain SQL."""
    with closing(sqlite3.connect(one.config.parent / "store.db", timeout=10)) as database:
        for statement in statements:
            database.execute(statement)
        database.executemany("INSERT INTO dlq_event_config (id, name, max_retries) VALUES (?, ?, ?)", rows)
        database.commit()


@contextmanager
def processor(vhost: Vhost, home: Path, told: str, rows: Rows = ()) -> Iterator[Served]:
    """The service, with a table that was there before it, as the document shapes it."""
    with served(vhost, home, told, start=False) as (one,):
        sql(one, TABLE, rows=rows)
        yield one.start()


@asynccontextmanager
async def application(vhost: Vhost) -> AsyncIterator[Application]:
    """With the document's test topology."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange(EXCHANGE, "topic")
        for queue, key in QUEUES.items():
            await app.channel.declare_queue(
                queue,
                arguments={
                    "x-dead-letter-exchange": "retry-exchange",
                    "x-dead-letter-routing-key": "retry-routing-key",
                },
            )
            await app.channel.bind_queue(queue, EXCHANGE, key)
        yield app


def letter(body: bytes, **more: Any) -> RawMessage:
    view = View(content_type="application/json", delivery_mode=2, headers={"tenant": "gold"}, **more)
    return RawMessage(message.encode(view), body)


def never(_delivery: Delivery, _count: int) -> bool:
    return False


def views(app: Application, queue: str) -> list[View]:
    return [message.view(d.message.properties) for name, d, _ in app.deliveries if name == queue]


def keys(app: Application, queue: str) -> list[str]:
    return [d.routing_key.decode() for name, d, _ in app.deliveries if name == queue]


def times(app: Application, queue: str) -> list[float]:
    return [at for name, _, at in app.deliveries if name == queue]


async def drained(vhost: Vhost, queue: str, count: int) -> list[Post]:
    """In a thread: the application goes on meanwhile."""
    return await asyncio.to_thread(postbox.drain, vhost.url, queue, expect=count)


async def dead(vhost: Vhost, count: int) -> list[Post]:
    return await drained(vhost, "dlq-queue", count)


def gaps(at: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(at)]


async def rest_is_empty(app: Application, levels: int = 3) -> None:
    """No letter is anywhere but where it should be."""
    for queue in (
        "retry-queue",
        *(f"queue.delay.{n + 1}" for n in range(levels)),
        *(f"retry-queue-{n + 1}" for n in range(levels)),
        *QUEUES,
        "deadletter.due",
        "deadletter.parked",
    ):
        assert await app.depth(queue) == 0, queue


# -- the document's own test ------------------------------------------------------------------------------
async def test_pass_fail_and_fail_pass(vhost: Vhost, tmp_path: Path) -> None:
    rows = [(n, key, 3) for n, key in enumerate(QUEUES.values(), start=1)]
    with processor(vhost, tmp_path, settings(), rows):
        async with application(vhost) as app:
            await app.declare("other-subscriber", kind="classic")
            await app.channel.bind_queue("other-subscriber", EXCHANGE, "rk.#")
            await app.consume("test-pass-queue", lambda _d, _n: True, keep=True)
            await app.consume("test-fail-queue", never, keep=True)
            await app.consume("test-fail-pass-queue", lambda _d, count: count > 2, keep=True)
            for key in QUEUES.values():
                await app.publish(EXCHANGE, key, [letter(key.encode(), expiration="600000", message_id=key)])

            (failed,) = await dead(vhost, 1)
            await app.until(lambda: app.seen["test-fail-pass-queue", b"rk.test.fail.pass"] == 3, 120)

            assert app.seen["test-pass-queue", b"rk.test.pass"] == 1
            assert app.seen["test-fail-queue", b"rk.test.fail"] == 4
            for queue, key in QUEUES.items():
                assert set(keys(app, queue)) == {key}
                assert [view.expiration for view in views(app, queue)[1:]] == [None] * (
                    len(views(app, queue)) - 1
                )
                assert {view.message_id for view in views(app, queue)} == {key}
                assert {view.content_type for view in views(app, queue)} == {"application/json"}
                assert all((view.headers or {})["tenant"] == "gold" for view in views(app, queue))

            assert failed.body == b"rk.test.fail"
            assert failed.properties.message_id == "rk.test.fail"
            assert failed.properties.expiration is None
            assert failed.headers["tenant"] == "gold"
            assert failed.headers[names.ORIGIN_QUEUE] == "test-fail-queue"
            assert failed.headers[names.ORIGIN_EXCHANGE] == EXCHANGE
            assert failed.headers[names.ORIGIN_ROUTING_KEY] == "rk.test.fail"
            assert failed.headers[names.ATTEMPT] == 3
            assert failed.headers[names.CAUSE] == "retries-exhausted"
            assert failed.headers[names.POLICY] == "dlq_event_config:rk.test.fail"
            assert failed.headers[names.WHY]
            assert failed.headers["x-death"][0]["queue"] == "test-fail-queue"
            assert failed.headers["x-death"][0]["reason"] == "rejected"

            others = await drained(vhost, "other-subscriber", 3)
            assert sorted(post.routing_key for post in others) == sorted(QUEUES.values())
            await rest_is_empty(app)


@pytest.mark.slow
async def test_the_levels_of_the_document_are_ten_fifteen_and_twenty_seconds(
    vhost: Vhost, tmp_path: Path
) -> None:
    told = '[[watches]]\nlayout = "levels"\n' + in_file(("rk.test.fail", 4))
    with processor(vhost, tmp_path, told):
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never, keep=True)
            await app.publish(EXCHANGE, "rk.test.fail", [letter(b"slow")])
            await app.until(lambda: app.seen["test-fail-queue", b"slow"] == 4, 200)

            waited = gaps(times(app, "test-fail-queue"))
            assert all(
                really >= due_s - CLOCK_S for due_s, really in zip((10, 15, 20), waited, strict=True)
            ), waited
            assert await app.depth("dlq-queue") == 0, "the fourth retry is still to come, after 20 s more"


async def test_exchanges_queues_and_bindings_have_the_names_of_the_document(
    vhost: Vhost, tmp_path: Path
) -> None:
    with processor(vhost, tmp_path, settings()):
        kinds = {one["name"]: one["type"] for one in vhost.list("exchanges")}
        bindings = {
            (one["source"], one["destination"], one["routing_key"])
            for one in vhost.list("bindings")
            if one["source"]
        }
        queues = {one["name"]: one["arguments"] for one in vhost.list("queues")}
    exchanges = ("retry-exchange", "retry-exchange-1", "retry-exchange-2", "retry-exchange-3")
    assert [kinds.get(name) for name in (*exchanges, "route-delay", "dlq-exchange")] == ["topic"] * 6
    assert ("retry-exchange", "retry-queue", "retry-routing-key") in bindings
    assert ("dlq-exchange", "dlq-queue", "dlq-routing-key") in bindings
    for n in (1, 2, 3):
        assert ("route-delay", f"queue.delay.{n}", f"binding.#.{n}") in bindings
        assert (f"retry-exchange-{n}", f"retry-queue-{n}", f"retry.#.{n}") in bindings
        assert queues[f"queue.delay.{n}"]["x-dead-letter-exchange"] == f"retry-exchange-{n}"
        assert queues[f"queue.delay.{n}"]["x-dead-letter-routing-key"] == f"retry.#.{n}"


# -- who decides ------------------------------------------------------------------------------------------
async def test_a_key_that_is_configured_nowhere_is_not_retried(vhost: Vhost, tmp_path: Path) -> None:
    # The file's default would retry; for this layout the document says otherwise.
    told = settings(more=in_file(("rk.other", 5)) + "[default_policy]\nretries = 5\n")
    with processor(vhost, tmp_path, told, [(1, "rk.test", 5), (2, "rk.test.fail.more", 5)]):
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never)
            await app.publish(EXCHANGE, "rk.test.fail", [letter(b"nobody knows me")])
            (failed,) = await dead(vhost, 1)
            assert app.seen["test-fail-queue", b"nobody knows me"] == 1
            assert failed.headers[names.CAUSE] == "no-retries"
            assert failed.headers[names.ORIGIN_QUEUE] == "test-fail-queue"
            assert failed.headers[names.ORIGIN_ROUTING_KEY] == "rk.test.fail"
            assert failed.headers[names.ATTEMPT] == 0
            await rest_is_empty(app)


async def test_more_retries_than_levels_use_the_last_level(vhost: Vhost, tmp_path: Path) -> None:
    told = settings(delays=("100ms", "400ms"))
    with processor(vhost, tmp_path, told, [(1, "rk.test.fail", 5)]):
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never, keep=True)
            await app.publish(EXCHANGE, "rk.test.fail", [letter(b"stubborn")])
            (failed,) = await dead(vhost, 1)
            assert app.seen["test-fail-queue", b"stubborn"] == 6
            assert failed.headers[names.ATTEMPT] == 5
            waited = gaps(times(app, "test-fail-queue"))
            assert waited[0] >= 0.1 - CLOCK_S
            assert all(gap >= 0.4 - CLOCK_S for gap in waited[1:]), waited
            await rest_is_empty(app, levels=2)


async def test_the_table_wins_over_the_file(vhost: Vhost, tmp_path: Path) -> None:
    told = settings(delays=("50ms",), more=in_file(("rk.test.fail", 5), ("rk.test.fail.pass", 2)))
    with processor(vhost, tmp_path, told, [(1, "rk.test.fail", 1)]):
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never)
            await app.consume("test-fail-pass-queue", never)
            await app.publish(EXCHANGE, "rk.test.fail", [letter(b"both say")])
            await app.publish(EXCHANGE, "rk.test.fail.pass", [letter(b"the file alone")])
            assert {post.body for post in await dead(vhost, 2)} == {b"both say", b"the file alone"}
            assert app.seen["test-fail-queue", b"both say"] == 1 + 1
            assert app.seen["test-fail-pass-queue", b"the file alone"] == 1 + 2


async def test_rows_with_nulls_are_ignored_and_of_duplicates_the_highest_id_wins(
    vhost: Vhost, tmp_path: Path
) -> None:
    rows: Rows = [
        (1, "rk.test.fail", 4),
        (9, "rk.test.fail", 1),
        (3, "rk.test.fail", 3),
        (10, "rk.test.fail", None),
        (11, None, 5),
        (4, "rk.test.fail.pass", None),
    ]
    told = settings(delays=("50ms",), more=in_file(("rk.test.fail.pass", 2)))
    with processor(vhost, tmp_path, told, rows) as one:
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never)
            await app.consume("test-fail-pass-queue", never)
            await app.publish(EXCHANGE, "rk.test.fail", [letter(b"twice")])
            await app.publish(EXCHANGE, "rk.test.fail.pass", [letter(b"null")])
            await dead(vhost, 2)
            assert app.seen["test-fail-queue", b"twice"] == 1 + 1
            assert app.seen["test-fail-pass-queue", b"null"] == 1 + 2, "the null row hid the file's policy"
        problems = one.get("/api/status")["policies"]["problems"]
        assert {1, 3, 4, 10, 11} == {
            n for n in range(12) if any(told.startswith(f"row {n} ") for told in problems)
        }


async def become(app: Application, vhost: Vhost, tries: int) -> None:
    """Letter after letter, until one is tried so often."""
    for number in range(120):
        body = b"%d for %d" % (number, tries)
        await app.publish(EXCHANGE, "rk.test.fail", [letter(body)])
        assert [post.body for post in await dead(vhost, 1)] == [body]
        if app.seen["test-fail-queue", body] == tries:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"no letter was tried {tries} times")


async def test_a_change_of_the_table_is_in_force_without_a_restart(vhost: Vhost, tmp_path: Path) -> None:
    with processor(vhost, tmp_path, settings(delays=("50ms",)), [(1, "rk.test.fail", 1)]) as one:
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never)

            await become(app, vhost, 2)
            sql(one, "UPDATE dlq_event_config SET max_retries = 3 WHERE name = 'rk.test.fail'")
            await become(app, vhost, 4)
            sql(one, "DELETE FROM dlq_event_config")
            await become(app, vhost, 1)
            sql(one, rows=[(7, "rk.#", 2)])
            await become(app, vhost, 3)


async def test_postgresql_is_the_store(vhost: Vhost, tmp_path: Path) -> None:
    with private_postgres() as postgres:
        url = postgres.fresh_database()
        postgres.psql(TABLE, url)
        postgres.psql("INSERT INTO dlq_event_config VALUES (1, 'rk.test.fail', 1)", url)
        told = settings(delays=("50ms",), more=f'[store]\nurl = "{url}"\n')
        with served(vhost, tmp_path, told):
            async with application(vhost) as app:
                await app.consume("test-fail-queue", never)
                await app.publish(EXCHANGE, "rk.test.fail", [letter(b"before")])
                await dead(vhost, 1)
                assert app.seen["test-fail-queue", b"before"] == 2
                postgres.psql("UPDATE dlq_event_config SET max_retries = 4", url)
                await become(app, vhost, 5)

                postgres.stop()
                await app.publish(EXCHANGE, "rk.test.fail", [letter(b"without a store")])
                await dead(vhost, 1)
                assert app.seen["test-fail-queue", b"without a store"] == 5, "the last policies stay in force"


# -- what must not happen ---------------------------------------------------------------------------------
@pytest.mark.slow
async def test_letters_that_expire_come_back_too_and_nobody_else_gets_them(
    vhost: Vhost, tmp_path: Path
) -> None:
    """A consumer's outage: letters die by their own expiration, and are there when it is over."""
    rows = [(1, "rk.test.pass", 3)]
    with processor(vhost, tmp_path, settings(more="[guards]\nrequire_consumers = true\n"), rows):
        async with application(vhost) as app:
            await app.declare("other-subscriber", kind="classic")
            await app.channel.bind_queue("other-subscriber", EXCHANGE, "#")
            await app.consume("other-subscriber", lambda _d, _n: True)
            bodies = [b"%d" % n for n in range(50)]
            await app.publish(EXCHANGE, "rk.test.pass", [letter(body, expiration="300") for body in bodies])
            await app.until(lambda: (vhost.depth("deadletter.held.test-pass-queue") or 0) == 50, 120)
            assert await app.depth("test-pass-queue") == 0, "nobody consumes it: nothing goes back"

            await app.consume("test-pass-queue", lambda _d, _n: True, keep=True)
            await app.until(lambda: len(app.deliveries) == 50, 120)
            assert all(app.seen["test-pass-queue", body] == 1 for body in bodies)
            assert set(keys(app, "test-pass-queue")) == {"rk.test.pass"}
            assert {view.expiration for view in views(app, "test-pass-queue")} == {None}
            assert all(app.seen["other-subscriber", body] == 1 for body in bodies)
            await rest_is_empty(app)
            assert await app.depth("dlq-queue") == 0


@pytest.mark.slow
async def test_three_instances_are_one_processor(vhost: Vhost, tmp_path: Path) -> None:
    told = settings(delays=("100ms", "200ms"), more=in_file(("rk.test.fail", 2), ("rk.test.fail.pass", 3)))
    told += "[guards.breaker]\nenabled = false\n"
    with served(vhost, tmp_path, told, instances=3):
        async with application(vhost) as app:
            await app.consume("test-fail-queue", never, keep=True)
            await app.consume("test-fail-pass-queue", lambda _d, count: count > 3, keep=True)
            bodies = [b"%d" % n for n in range(500)]
            await app.publish(EXCHANGE, "rk.test.fail", [letter(body) for body in bodies])
            await app.publish(EXCHANGE, "rk.test.fail.pass", [letter(body) for body in bodies])
            assert sorted(post.body for post in await dead(vhost, 500)) == sorted(bodies)
            await app.until(
                lambda: all(app.seen["test-fail-pass-queue", body] == 4 for body in bodies), 60, "success"
            )
            assert all(app.seen["test-fail-queue", body] == 3 for body in bodies)
            assert set(keys(app, "test-fail-queue")) == {"rk.test.fail"}
            await rest_is_empty(app, levels=2)
