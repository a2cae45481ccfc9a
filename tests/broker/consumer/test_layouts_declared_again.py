"""Somebody deletes what a running consumer stands on: it is declared again, and no letter is lost.

About `consumer.queues.declared_layouts`, `consumer.queues.due_release`, `broker.declare`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from typing import Any

import pika
import pytest
from tests import consuming, postbox
from tests.brokers import Vhost, call

from deadletter import Consumer, fixed
from deadletter.broker.declare import declare
from deadletter.consumer.events import Event, Fate, Handled, Lost
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.node.private import PrivateBroker

DUE, PARKED, LEVEL = "deadletter.due", "deadletter.parked", "deadletter.delay.500"
DELAY_S = 0.5


@pytest.fixture
def soon(broker: PrivateBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the broker could not pass on it tries again after two seconds, not after three minutes."""
    monkeypatch.setattr("deadletter.consumer.queues.declared_layouts.LOOK_S", 0.5)
    setting = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {})."
    broker.rabbitmqctl("eval", setting.format(2_000))
    yield
    broker.rabbitmqctl("eval", setting.format(180_000))


@asynccontextmanager
async def serving(app: Consumer) -> AsyncIterator[list[Event]]:
    async with consuming.serving(app) as heard:
        yield heard.events


async def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        await asyncio.sleep(0.05)


async def published(vhost: Vhost, *bodies: bytes, to: str = "orders", **headers: object) -> None:
    """Confirmed; whoever consumes the queue may have them at once."""

    def work() -> None:
        properties = pika.BasicProperties(
            delivery_mode=2, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", to, body, properties, mandatory=True)

    await asyncio.to_thread(work)


def flaky(vhost: Vhost, layout: LayoutName, tries: Counter[bytes], retries: int = 2) -> Consumer:
    """Every message fails once."""
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout=layout, retries=retries, backoff=fixed(DELAY_S))
    async def handle(body: bytes) -> None:
        tries[body] += 1
        if tries[body] == 1:
            raise ConnectionError("the warehouse does not answer")

    return app


def losses(events: list[Event], what: str) -> list[Lost]:
    return [event for event in events if isinstance(event, Lost) and event.what == what]


async def nothing_left(vhost: Vhost) -> None:
    for queue in [found["name"] for found in await asyncio.to_thread(vhost.list, "queues")]:
        assert await asyncio.to_thread(postbox.depth, vhost.url, queue) == 0, queue


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("layout", "kind", "gone"),
    [("loop", "queues", "orders.retry"), ("ladder", "exchanges", "orders__retry_dlx")],
)
async def test_what_only_the_broker_uses_is_missed_and_declared_again(
    vhost: Vhost, layout: LayoutName, kind: str, gone: str
) -> None:
    """The broker keeps what it cannot pass on, and says nothing: no publish of ours finds it missing."""
    tries: Counter[bytes] = Counter()
    async with serving(flaky(vhost, layout, tries)) as events:
        await asyncio.to_thread(vhost.delete, kind, gone)
        await published(vhost, b"1", b"2")
        await until(lambda: losses(events, f"{kind.removesuffix('s')} {gone}"), "the news")
        assert vhost.get(kind, gone) is not None
        await until(lambda: tries == {b"1": 2, b"2": 2}, "the second tries")
        await asyncio.sleep(0.2)
    await nothing_left(vhost)


async def test_due_letters_that_lost_their_queue_have_it_again(vhost: Vhost) -> None:
    """Also while the application's own queue is not there, which is nobody's to declare."""
    tries: Counter[bytes] = Counter()
    async with serving(flaky(vhost, "return", tries)) as events:
        await until(lambda: (vhost.get("queues", DUE) or {}).get("consumers"), "it is consumed")
        await asyncio.to_thread(vhost.delete, "queues", "orders")
        await asyncio.to_thread(vhost.delete, "queues", DUE)
        await until(lambda: losses(events, f"queue {DUE}"), "the news")
        await until(lambda: vhost.get("queues", DUE) is not None, "the queue")
        assert vhost.get("queues", "orders") is None
        await asyncio.to_thread(postbox.declare, vhost.url, "orders", kind="quorum")
        await published(vhost, b"1")
        await until(lambda: tries == {b"1": 2}, "the second try")
        await asyncio.sleep(0.2)
    await nothing_left(vhost)


@pytest.mark.slow
async def test_what_cannot_be_declared_is_tried_again_after_pauses_that_grow(vhost: Vhost) -> None:
    """The rights to declare it were taken away as well."""
    tries: Counter[bytes] = Counter()
    async with serving(flaky(vhost, "return", tries)) as events:
        user = vhost.broker.url.split("//")[1].split(":")[0]
        none = {"configure": "^$", "write": ".*", "read": "^orders$"}
        call(vhost.broker, "PUT", "permissions", vhost.name, user, content=none)
        await asyncio.to_thread(vhost.broker.rabbitmqctl, "delete_queue", "-p", vhost.name, DUE)
        await until(lambda: len(losses(events, f"queue {DUE}")) >= 3, "three tries")
        seconds = [event.seconds for event in losses(events, f"queue {DUE}")]
        assert all(later > earlier for earlier, later in pairwise(seconds[:3]))
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        call(vhost.broker, "PUT", "permissions", vhost.name, user, content=everything)
        await until(lambda: vhost.get("queues", DUE) is not None, "the queue")
        await published(vhost, b"1")
        await until(lambda: tries == {b"1": 2}, "the second try")
        await asyncio.sleep(0.2)
    await nothing_left(vhost)


async def test_a_due_letter_that_cannot_go_is_told_of_and_tried_again(vhost: Vhost) -> None:
    app = flaky(vhost, "return", Counter())
    full = {"max-length": 1, "overflow": "reject-publish"}
    async with serving(app) as events:
        await published(vhost, b"full", b"full", b"full", to=PARKED)
        policy = {
            "pattern": "^deadletter.parked$",
            "definition": full,
            "priority": 1_000,
            "apply-to": "queues",
        }
        await asyncio.to_thread(lambda: vhost.put("policies", "full", **policy))
        await asyncio.sleep(0.5)
        await published(vhost, b"1", to=DUE, deadletter_origin_queue="nowhere")
        await until(lambda: losses(events, f"queue {DUE}"), "the news")
        (stuck, *_) = [event for event in events if isinstance(event, Handled)]
        assert (stuck.queue, stuck.fate) == (DUE, Fate.STUCK)
        assert PARKED in stuck.why
        await asyncio.to_thread(vhost.delete, "policies", "full")
        await until(lambda: postbox.depth(vhost.url, PARKED) == 4, "the letter")
    (*_, letter) = await asyncio.to_thread(postbox.drain, vhost.url, PARKED)
    assert letter.headers["deadletter-cause"] == "origin-missing"
    await nothing_left(vhost)


async def test_letters_come_home_although_connections_are_killed(vhost: Vhost) -> None:
    tries: Counter[bytes] = Counter()
    bodies = [b"%d" % n for n in range(200)]
    async with serving(flaky(vhost, "return", tries)):
        await published(vhost, *bodies[:100])
        for _ in range(3):
            await asyncio.sleep(DELAY_S / 2)
            await asyncio.to_thread(kill_connections, vhost)
        await published(vhost, *bodies[100:])
        await until(lambda: all(tries[body] >= 2 for body in bodies), "the second tries")
        await asyncio.sleep(0.5)
    await nothing_left(vhost)


def kill_connections(vhost: Vhost) -> None:
    """All that there are, as soon as the management API knows of one."""
    killed: list[str] = []
    postbox.wait_for(
        lambda: bool(call(vhost.broker, "GET", "vhosts", vhost.name, "connections")), "a connection"
    )
    for connection in call(vhost.broker, "GET", "vhosts", vhost.name, "connections"):
        try:
            call(vhost.broker, "DELETE", "connections", connection["name"])
            killed.append(connection["name"])
        except AssertionError as refused:
            if ": 500 " not in str(refused):  # that is one that has ended by itself meanwhile
                raise
    assert killed


async def test_many_letters_that_find_the_same_thing_missing_declare_it_once(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared: list[str] = []

    async def counted(*arguments: Any, **more: Any) -> Any:
        declared.append("again")
        return await declare(*arguments, **more)

    tries: Counter[bytes] = Counter()
    bodies = [b"%d" % n for n in range(50)]
    async with serving(flaky(vhost, "ladder", tries)):
        monkeypatch.setattr("deadletter.consumer.queues.declared_layouts.declare", counted)
        await asyncio.to_thread(vhost.delete, "queues", "orders__retry.1")
        await published(vhost, *bodies)
        await until(lambda: all(tries[body] == 2 for body in bodies), "the second tries")
        await asyncio.sleep(0.2)
    assert declared == ["again"]
    await nothing_left(vhost)
