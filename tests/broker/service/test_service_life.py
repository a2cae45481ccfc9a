"""The life of `dlq serve`: start, reload and end, and a broker that changes under it.

About `service.running`, `service.vhost_worker`, `service.queue_workers`, `service.queue_loop`,
`service.task_set`, `service.own_topology.declared`, `broker.return_exchanges`, `cli.serve_command`.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from tests import postbox
from tests.brokers import Vhost, call, fresh_vhost
from tests.postbox import Post
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message, names
from deadletter.core.letter.message import RawMessage, View

PARKED = "deadletter.parked"
NO_BREAKER = "[guards.breaker]\nenabled = false\n"
WATCH = '[[watches]]\ndlq = "*.dlq"\n'


def policy(retries: int = 3, delay: str = "100ms") -> str:
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = ["{delay}"] }}\n'


USUAL = policy() + WATCH + NO_BREAKER


def letter(body: bytes, **headers: Any) -> RawMessage:
    return RawMessage(message.encode(View(delivery_mode=2, headers=headers)), body)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def second_time(_delivery: Delivery, count: int) -> bool:
    return count > 1


def never(_delivery: Delivery, _count: int) -> bool:
    return False


async def until(holds: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


async def said(one: Served, *words: str, after: int = 0) -> None:
    """Until a line of its log, after so many characters, has all these words."""

    def told() -> bool:
        lines = one.log.read_text()[after:].splitlines()
        return any(all(word in line for word in words) for line in lines)

    try:
        await until(told, f"a line with {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {one.said()}") from None


async def emptied(vhost: Vhost, queue: str, count: int) -> list[Post]:
    return await asyncio.to_thread(postbox.drain, vhost.url, queue, expect=count)


async def comes_back(app: Application, queue: str = "orders", body: bytes = b"one more") -> None:
    """A letter that dies now is back; somebody consumes the queue and succeeds the second time."""
    await app.publish("", queue, [letter(body)])
    await app.until(lambda: app.seen[queue, body] == 2, 120, f"{body!r} back in {queue}")


@contextmanager
def as_user(vhost: Vhost, name: str, **permissions: str) -> Iterator[Vhost]:
    """The vhost, as a user with these permissions sees it."""
    call(vhost.broker, "PUT", "users", name, content={"password": "secret", "tags": "monitoring,policymaker"})
    allowed = {"configure": ".*", "write": ".*", "read": ".*", **permissions}
    call(vhost.broker, "PUT", "permissions", vhost.name, name, content=allowed)
    try:
        yield signed_in(vhost, name, "secret")
    finally:
        call(vhost.broker, "DELETE", "users", name)


def signed_in(vhost: Vhost, name: str, password: str) -> Vhost:
    parts = urlsplit(vhost.broker.url)
    url = parts._replace(netloc=f"{name}:{password}@{parts.hostname}:{parts.port}").geturl()
    return replace(vhost, broker=replace(vhost.broker, url=url))


def ended(one: Served) -> int:
    return one.process.wait(120)


# -- start ------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_it_waits_for_a_broker_that_is_down(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind="classic")
        await app.consume("orders", never)
        await app.publish("", "orders", map(letter, numbered(20)))
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 20, "20 dead letters")
    await asyncio.to_thread(vhost.broker.kill)
    try:
        with served(vhost, tmp_path, USUAL, start=False) as (one,):
            one.start(ready=False)
            await said(one, "does not work", "what=broker")
            assert one.get("/health/live")["ok"]
            await asyncio.sleep(2)
            assert one.process.poll() is None
            await asyncio.to_thread(vhost.broker.restart)
            await asyncio.to_thread(one.until_ready)
            await said(one, "works again", "what=broker")
            async with Application(vhost.url) as app:
                await app.consume("orders", lambda _d, _n: True)
                await app.until(lambda: len(app.seen) == 20, 120, "they are back")
                assert set(app.seen.values()) == {1}
    finally:
        if not broker_is_up(vhost):
            await asyncio.to_thread(vhost.broker.restart)


def broker_is_up(vhost: Vhost) -> bool:
    try:
        return bool(vhost.list("queues") or True)
    except OSError:
        return False


async def test_without_a_watch_it_says_what_is_missing(vhost: Vhost, tmp_path: Path) -> None:
    with served(vhost, tmp_path, policy(), start=False) as (one,):
        one.start(ready=False)
        assert await asyncio.to_thread(ended, one) == 2
        assert "--watch" in one.said()
        assert "[[watches]]" in one.said()


async def test_a_wrong_password_ends_it_at_once(vhost: Vhost, tmp_path: Path) -> None:
    with served(signed_in(vhost, "guest", "sesame"), tmp_path, USUAL, start=False) as (one,):
        one.start(ready=False)
        assert await asyncio.to_thread(ended, one) == 3
        assert "sesame" not in one.said(), "the password is told"
        assert "refuse" in one.said().lower()


async def test_an_operators_limit_on_our_queues_keeps_it_from_starting(vhost: Vhost, tmp_path: Path) -> None:
    limit = {"pattern": "^deadletter", "definition": {"max-length": 10}, "apply-to": "queues", "priority": 1}
    call(vhost.broker, "PUT", "operator-policies", vhost.name, "small", content=limit)
    with served(vhost, tmp_path, USUAL, start=False) as (one,):
        one.start(ready=False)
        assert await asyncio.to_thread(ended, one) == 1
        assert "small" in one.said()
        assert "max-length" in one.said()
        assert "deadletter." in one.said()


# -- end --------------------------------------------------------------------------------------------------
async def test_the_second_sigterm_ends_it_at_once(vhost: Vhost, tmp_path: Path) -> None:
    """What the service says no longer reaches the broker, so the orderly end has to wait for its answers."""
    async with Application(vhost.url) as app, Mute(vhost) as mute:
        await app.with_dlq("orders")
        await app.consume("orders", never)
        with served(mute.vhost, tmp_path, policy(delay="30s") + WATCH, start=False) as (one,):
            one.start(ready=False)
            await asyncio.to_thread(one.until_ready)
            await until(lambda: consumers(vhost, "orders.dlq") > 0, "it consumes")
            mute.hears.clear()
            await app.publish("", "orders", map(letter, numbered(100)))
            await until(lambda: taken(vhost, "orders.dlq") > 0, "it has taken some")
            one.process.send_signal(signal.SIGTERM)
            await said(one, "stopping")
            await asyncio.sleep(1)
            assert one.process.poll() is None, "it did not wait for what is under way"
            one.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(one.process.wait, 60) == -signal.SIGTERM, "by the signal itself"
    await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 100, "all of them are there again")


def consumers(vhost: Vhost, queue: str) -> int:
    return int((vhost.get("queues", queue) or {}).get("consumers", 0))


def taken(vhost: Vhost, queue: str) -> int:
    return int((vhost.get("queues", queue) or {}).get("messages_unacknowledged", 0))


class Mute:
    """A line to the broker over which nothing goes there while `hears` is not set; answers still come."""

    def __init__(self, vhost: Vhost) -> None:
        self.hears = asyncio.Event()
        self.hears.set()
        self._vhost = vhost
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []

    @property
    def vhost(self) -> Vhost:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._vhost.broker.url)
        url = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()
        return replace(self._vhost, broker=replace(self._vhost.broker, url=url))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()
        await asyncio.sleep(0)  # a transport is closed with the next turn of the loop

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(self._vhost.broker.url)
        there, here = await asyncio.open_connection(target.hostname, target.port)
        self._ends += [writer, here]
        for source, sink, stops in ((reader, here, True), (there, writer, False)):
            task = asyncio.create_task(self._pass_on(source, sink, stops=stops))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, stops: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if stops:
                    await self.hears.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


@pytest.mark.slow
async def test_a_restart_of_the_broker_while_letters_are_under_way(vhost: Vhost, tmp_path: Path) -> None:
    with served(vhost, tmp_path, policy(retries=50, delay="300ms") + WATCH + NO_BREAKER) as (one,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", never)
            await app.publish("", "orders", map(letter, numbered(200)))
            await app.until(lambda: min((app.seen["orders", b] for b in numbered(200)), default=0) > 2, 30)
        await asyncio.to_thread(vhost.broker.restart)
        async with Application(vhost.url) as app:
            await app.consume("orders", lambda _d, _n: True)
            await app.until(lambda: len(app.seen) == 200, 120, "all of them are back")
            assert app.seen.total() - 200 <= 200, "copies after a crash are few"
        assert one.process.poll() is None
        await said(one, "works again", "what=broker")


# -- reload -----------------------------------------------------------------------------------------------
async def test_a_reload_takes_over_watches_and_policies_and_loses_nothing(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.declare("bills.failed")
        await app.declare("bills", x_dead_letter_exchange="", x_dead_letter_routing_key="bills.failed")
        await app.consume("orders", never)
        await app.consume("bills", second_time)
        with served(vhost, tmp_path, policy(retries=4) + WATCH + NO_BREAKER) as (one,):
            await app.publish("", "orders", map(letter, numbered(300)))
            await app.until(lambda: app.seen.total() > 600, 120, "they are under way")
            one.write(
                policy(retries=6, delay="150ms") + WATCH + '[[watches]]\ndlq = "*.failed"\n' + NO_BREAKER
            )
            one.process.send_signal(signal.SIGHUP)
            await said(one, "reloaded")
            parked = await emptied(vhost, PARKED, 300)
            assert Counter(post.body for post in parked) == Counter(numbered(300))
            assert {app.seen["orders", body] for body in numbered(300)} == {7}, "the new number of retries"
            assert {post.headers[names.ATTEMPT] for post in parked} == {6}
            await comes_back(app, "bills")
            watches = one.get("/api/status")["watches"]
            assert [watch["dlq"] for watch in watches] == ["*.dlq", "*.failed"]


async def test_a_configuration_that_makes_no_sense_changes_nothing(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", second_time)
        with served(vhost, tmp_path, USUAL) as (one,):
            for broken in (policy(retries=-1) + WATCH, policy(), "[[watches"):
                before = len(one.log.read_text())
                one.write(broken)
                one.process.send_signal(signal.SIGHUP)
                await until(
                    lambda: any(t["what"] == "configuration" for t in one.get("/api/status")["troubles"]),
                    "it says so",
                )
                await comes_back(app, body=broken.encode())
                assert one.process.poll() is None
                assert "reloaded" not in one.log.read_text()[before:]
            await said(one, "does not work", "what=configuration", "the old one stays in force")
            one.write(USUAL)
            one.process.send_signal(signal.SIGHUP)
            await said(one, "works again", "what=configuration")
            await said(one, "reloaded")
            await asyncio.to_thread(one.until_ready)
            assert not one.get("/api/status")["troubles"]
            await comes_back(app)


# -- a broker that changes --------------------------------------------------------------------------------
async def test_a_new_queue_is_noticed_and_one_that_was_deleted_comes_back(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app:
        with served(vhost, tmp_path, USUAL) as (one,):
            await app.with_dlq("orders")
            await app.consume("orders", second_time)
            await comes_back(app)

            await app.channel.delete_queue("orders.dlq")
            await until(lambda: "orders.dlq" not in queues(one), "it is seen to be gone")
            await app.declare("orders.dlq")
            await comes_back(app, body=b"after it was declared anew")

            await app.declare("bills.dlq", kind="classic")
            dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "bills.dlq"}
            await app.declare("bills", kind="classic", **dead)
            await app.consume("bills", second_time)
            await comes_back(app, "bills")


@pytest.mark.slow
async def test_a_queue_that_is_deleted_and_at_once_declared_anew(vhost: Vhost, tmp_path: Path) -> None:
    """So soon that no look around sees it gone. (Of a quorum queue 3.10 subscribes us again without a word
    and swallows the first deliveries; they are back when the line begins anew, every ten minutes.)"""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind="classic")
        await app.consume("orders", second_time)
        with served(vhost, tmp_path, USUAL):
            await comes_back(app)
            await app.channel.delete_queue("orders.dlq")
            await app.declare("orders.dlq", kind="classic")
            await comes_back(app, body=b"after it was declared anew")


def queues(one: Served) -> set[str]:
    return {queue["queue"] for queue in one.get("/api/status")["queues"]}


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["deadletter.delay.100", "deadletter.due", PARKED])
async def test_a_queue_of_ours_that_somebody_deletes_is_declared_anew(
    vhost: Vhost, tmp_path: Path, gone: str
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda d, count: d.message.body != b"bad" and count > 1)
        with served(vhost, tmp_path, policy(retries=1) + WATCH + NO_BREAKER):
            await comes_back(app, body=b"before")
            await app.channel.delete_queue(gone)
            if gone != "deadletter.delay.100":
                # A level whose target is missing tries again after minutes only; a level itself is missed by
                # the next letter.
                await until(lambda: vhost.get("queues", gone) is not None, "it is there again")
            await app.publish("", "orders", map(letter, [b"bad", *numbered(20)]))
            await app.until(lambda: all(app.seen["orders", b] == 2 for b in numbered(20)), 120, "all back")
            (bad,) = await emptied(vhost, PARKED, 1)
            assert bad.body == b"bad"


@pytest.mark.slow
async def test_an_origin_whose_way_back_somebody_deletes(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", second_time)
        with served(vhost, tmp_path, USUAL):
            await comes_back(app, body=b"before")
            await app.channel.delete_exchange("deadletter.return.orders")
            await comes_back(app, body=b"without the exchange")
            await app.channel.unbind_queue("orders", "deadletter.return.orders", "")
            await comes_back(app, body=b"without the binding")


async def test_a_deleted_origin_parks_its_letters_with_the_reason(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.with_dlq("gone")
        await app.consume("orders", second_time)
        await app.consume("gone", never)
        with served(vhost, tmp_path, policy(delay="500ms") + WATCH):
            await app.publish("", "gone", map(letter, numbered(10)))
            await until(lambda: postbox.depth(vhost.url, "deadletter.delay.500") > 0, "they wait")
            await app.channel.delete_queue("gone")
            await comes_back(app)
            parked = await emptied(vhost, PARKED, 10)
            assert sorted(post.body for post in parked) == numbered(10)
            assert {post.headers[names.CAUSE] for post in parked} == {"origin-missing"}
            assert {post.headers[names.ORIGIN_QUEUE] for post in parked} == {"gone"}


async def test_where_it_may_not_bind_letters_go_by_the_name_of_their_queue(
    vhost: Vhost, tmp_path: Path
) -> None:
    """Through the default exchange: `CC` would make copies there, and the key is the queue's name."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("shop", "topic")
        await app.channel.declare_exchange("dlx", "fanout")  # leaves CC on the letter, on every version
        await app.declare("orders.dlq")
        await app.channel.bind_queue("orders.dlq", "dlx")
        await app.declare("orders", x_dead_letter_exchange="dlx")
        await app.channel.bind_queue("orders", "shop", "order.*")
        await app.declare("spy")
        await app.consume("orders", second_time, keep=True)
        with (
            as_user(vhost, "careful", configure=r"^(?!deadletter\.return\.)") as seen,
            served(seen, tmp_path, USUAL),
        ):
            await app.publish("shop", "order.new", [letter(b"mine", CC=["spy"], tenant="gold")])
            await app.until(lambda: app.seen["orders", b"mine"] == 2, 120, "it is back")
            _, delivery, _ = app.deliveries[1]
            headers = message.view(delivery.message.properties).headers or {}
            assert delivery.exchange == b""
            assert delivery.routing_key == b"orders"
            assert headers[names.ORIGIN_ROUTING_KEY] == "order.new"
            assert headers[names.CC] == ["spy"]
            assert "CC" not in headers
            assert headers["tenant"] == "gold"
            assert await app.depth("spy") == 0, "CC made a copy"
        assert vhost.get("exchanges", "deadletter.return.orders") is None


# -- what it decides --------------------------------------------------------------------------------------
async def test_several_vhosts_are_looked_after_each_by_itself(vhost: Vhost, tmp_path: Path) -> None:
    with fresh_vhost(vhost.broker) as other:
        told = policy() + WATCH + f'[[watches]]\ndlq = "*.dlq"\nvhost = "{other.name}"\n'
        async with Application(vhost.url) as here, Application(other.url) as there:
            for app in (here, there):
                await app.with_dlq("orders")
                await app.consume("orders", second_time)
            with served(vhost, tmp_path, told):
                await comes_back(here, body=b"here")
                await comes_back(there, body=b"there")
                assert set(here.seen) == {("orders", b"here")}
                assert set(there.seen) == {("orders", b"there")}


async def test_conditions_on_the_body_decide_and_a_discard_is_told(vhost: Vhost, tmp_path: Path) -> None:
    rules = """
[[policies]]
name = "junk"
match = { header = { kind = "junk" } }
retries = 0
then = "discard"
[[policies]]
name = "big"
match = { body = ".total > 100" }
retries = 0
[[policies]]
name = "small"
match = { body = ".total <= 100" }
retries = 2
backoff = { kind = "fixed", delays = ["50ms"] }
"""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", never)
        with served(vhost, tmp_path, policy(retries=1, delay="50ms") + rules + WATCH) as (one,):
            await app.publish(
                "",
                "orders",
                [
                    letter(b'{"total": 1000}'),
                    letter(b'{"total": 10}'),
                    letter(b"no JSON"),
                    letter(b'{"total": 2000}', kind="junk"),
                ],
            )
            parked = {post.body: post.headers for post in await emptied(vhost, PARKED, 3)}
            assert {body: told[names.POLICY] for body, told in parked.items()} == {
                b'{"total": 1000}': "big",
                b'{"total": 10}': "small",
                b"no JSON": "default",
            }
            assert [parked[body][names.ATTEMPT] for body in (b'{"total": 1000}', b'{"total": 10}')] == [0, 2]
            assert app.seen == {
                ("orders", b'{"total": 1000}'): 1,
                ("orders", b'{"total": 10}'): 3,
                ("orders", b"no JSON"): 2,
                ("orders", b'{"total": 2000}'): 1,
            }
            await said(one, "letters discarded", "queue=orders.dlq", "letters=1", "policies=junk")
            for queue in ("orders", "orders.dlq", "deadletter.due"):
                assert await app.depth(queue) == 0
