"""Every layout through every adapter, in its own framework on a real broker.

About `adapters.prepare`, `adapters.terms`, `adapters.aio_pika`, `adapters.faststream`, `adapters.pika`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any, TypeAlias

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitMessage, RabbitQueue
from tests import postbox
from tests.brokers import Vhost

import deadletter.adapters.aio_pika as with_aio_pika
import deadletter.adapters.pika as with_pika
from deadletter.adapters.faststream import with_retries
from deadletter.adapters.terms import AdapterWishes
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.outcomes import Park
from deadletter.core.topology.layout_names import AdapterLayoutName
from deadletter.errors import ServiceRefused, UsageError
from deadletter.testing.node.private import PrivateBroker

QUEUE = "shop.orders"
ASIDE = {
    "ladder": f"{QUEUE}__dlq",
    "loop": f"{QUEUE}.dlq",
    "return": "deadletter.parked",
    "native": f"{QUEUE}.dlq",
    "external": f"{QUEUE}.dlq",
}
Handle: TypeAlias = Callable[[bytes], None]
Consuming: TypeAlias = Callable[[Vhost, AdapterWishes, Handle], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def by_aio_pika(vhost: Vhost, wishes: AdapterWishes, handle: Handle) -> AsyncIterator[None]:
    @with_aio_pika.retrying(vhost.url, queue=QUEUE, **wishes)
    async def on_message(message: AbstractIncomingMessage) -> None:
        handle(message.body)

    await on_message.prepare(api=vhost.api)
    async with await aio_pika.connect(vhost.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        await (await channel.get_queue(QUEUE)).consume(on_message)
        yield
    await on_message.close()


@asynccontextmanager
async def by_pika(vhost: Vhost, wishes: AdapterWishes, handle: Handle) -> AsyncIterator[None]:
    @with_pika.retrying(queue=QUEUE, **wishes)
    def on_message(_channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        handle(body)

    await asyncio.to_thread(on_message.prepare, vhost.url, api=vhost.api)
    ended = threading.Event()

    def consume() -> None:
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            channel.basic_consume(QUEUE, on_message)
            while not ended.is_set():
                connection.process_data_events(0.1)

    consuming = asyncio.create_task(asyncio.to_thread(consume))
    try:
        yield
    finally:
        ended.set()
        await consuming


def by_faststream(policy: AckPolicy) -> Consuming:
    @asynccontextmanager
    async def consuming(vhost: Vhost, wishes: AdapterWishes, handle: Handle) -> AsyncIterator[None]:
        retries = with_retries(vhost.url, **wishes)
        broker = RabbitBroker(vhost.url, middlewares=[retries], logger=None)

        @broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=policy)
        async def handler(body: bytes, message: RabbitMessage) -> None:
            handle(body)
            if policy is AckPolicy.MANUAL:
                await message.ack()

        await retries.prepare(broker, api=vhost.api)
        async with broker:
            await broker.start()
            yield
        await retries.close()

    return consuming


FRAMEWORKS = [
    pytest.param(by_aio_pika, id="aio-pika"),
    pytest.param(by_pika, id="pika"),
    pytest.param(by_faststream(AckPolicy.NACK_ON_ERROR), id="faststream"),
    pytest.param(by_faststream(AckPolicy.MANUAL), id="faststream-manual"),
]
each = pytest.mark.parametrize("consuming", FRAMEWORKS)


@each
@pytest.mark.parametrize(
    "layout",
    # the examples are on a ladder, and they are run too
    [pytest.param("ladder", marks=pytest.mark.slow), "loop", "return", "native", "external"],
)
async def test_every_layout(
    vhost: Vhost, broker: PrivateBroker, consuming: Consuming, layout: AdapterLayoutName
) -> None:
    """In `return` nobody releases here: what is due waits for `dlq serve`, or a consumer of ours."""
    if layout == "native" and not has_native(broker):
        pytest.skip("this broker has no native retries; that the layout is refused there has its own test")
    if layout == "external":
        await asyncio.to_thread(declare_with_dlq, vhost)
    tries: Counter[bytes] = Counter()

    def handle(body: bytes) -> None:
        tries[body] += 1
        if body == b"never":
            raise Park("no such customer")
        if body == b"hopeless" or (body == b"flaky" and tries[body] == 1):
            raise TimeoutError("the warehouse does not answer")

    comes_back = layout not in ("return", "external")
    expected = {b"good": 1, b"never": 1, b"flaky": 1 + comes_back, b"hopeless": 1 + 2 * comes_back}
    async with consuming(vhost, {"layout": layout, "retries": 2, "backoff": fixed(0.3)}, handle):
        await publish(vhost, b"good", b"never", b"flaky", b"hopeless")
        await until(lambda: tries == expected)
        due = [] if layout != "return" else await taken(vhost, "deadletter.due", 2)
        letters = await taken(vhost, ASIDE[layout], {"return": 1, "external": 3}.get(layout, 2))
    assert tries == expected
    parked = {letter.body: letter.headers for letter in letters}
    if layout == "external":
        assert parked.keys() == {b"never", b"flaky", b"hopeless"}
        assert {headers["x-death"][0]["reason"] for headers in parked.values()} == {"rejected"}
    else:
        assert parked[b"never"]["deadletter-cause"] == "handler"
        assert parked[b"never"]["deadletter-attempt"] == 0
    if comes_back:
        assert parked[b"hopeless"]["deadletter-cause"] == "retries-exhausted"
        assert parked[b"hopeless"]["deadletter-attempt"] == 2
        assert parked[b"hopeless"]["deadletter-origin-queue"] == QUEUE
        assert parked[b"hopeless"]["deadletter-error-message"] == "the warehouse does not answer"
    assert {letter.body for letter in due} == ({b"flaky", b"hopeless"} if layout == "return" else set())
    for queue in await asyncio.to_thread(vhost.list, "queues"):
        assert await asyncio.to_thread(postbox.depth, vhost.url, queue["name"]) == 0, queue["name"]


@each
async def test_what_kills_its_consumer_is_put_aside_unseen(vhost: Vhost, consuming: Consuming) -> None:
    seen: list[bytes] = []
    await asyncio.to_thread(postbox.declare, vhost.url, QUEUE, kind="quorum")
    await asyncio.to_thread(deliver_in_vain, vhost, b"killer", times=3)
    async with consuming(vhost, {"deliveries": 3}, seen.append):
        await publish(vhost, b"good")
        await until(lambda: seen == [b"good"])
        (letter,) = await taken(vhost, ASIDE["ladder"], 1)
    assert (letter.body, letter.headers["deadletter-cause"]) == (b"killer", "killed-its-consumer")
    assert seen == [b"good"]
    assert await asyncio.to_thread(postbox.depth, vhost.url, QUEUE) == 0


@each
async def test_native_is_refused_where_the_broker_would_ignore_it(
    vhost: Vhost, broker: PrivateBroker, consuming: Consuming
) -> None:
    if has_native(broker):
        pytest.skip("this broker has native retries")
    with pytest.raises(
        UsageError, match=r"expected RabbitMQ 4\.3\.1 or later, got .* take the layout return"
    ):
        async with consuming(vhost, {"layout": "native"}, print):
            pass


@each
async def test_external_is_refused_without_a_dead_letter_exchange(vhost: Vhost, consuming: Consuming) -> None:
    await asyncio.to_thread(postbox.declare, vhost.url, QUEUE, kind="quorum")
    with pytest.raises(
        ServiceRefused, match=r"expected a dead-letter exchange on queue 'shop\.orders', got none"
    ):
        async with consuming(vhost, {"layout": "external"}, print):
            pass


def has_native(broker: PrivateBroker) -> bool:
    return tuple(int(part) for part in broker.version.split(".")[:3]) >= (4, 3, 1)


def declare_with_dlq(vhost: Vhost) -> None:
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": ASIDE["external"]}
    postbox.declare(vhost.url, ASIDE["external"], kind="quorum")
    postbox.declare(vhost.url, QUEUE, kind="quorum", **dead)


def deliver_in_vain(vhost: Vhost, body: bytes, *, times: int) -> None:
    """A consumer that dies of it, as far as the queue can tell."""
    postbox.fill(vhost.url, QUEUE, [body], dead=False)
    for _ in range(times):
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            postbox.wait_for(lambda: channel.basic_get(QUEUE)[0] is not None, "the delivery")  # noqa: B023


async def publish(vhost: Vhost, *bodies: bytes) -> None:
    for body in bodies:
        await asyncio.to_thread(postbox.fill_one, vhost.url, QUEUE, body)


async def taken(vhost: Vhost, queue: str, count: int) -> list[postbox.Post]:
    found = await asyncio.to_thread(postbox.drain, vhost.url, queue, expect=count)
    assert len(found) == count
    return found


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.05)
