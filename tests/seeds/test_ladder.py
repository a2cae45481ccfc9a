"""Retries inside the consumer, by a queue for each of them: `orders__retry_exchange`, `orders__retry_dlx`,
`orders__retry.<n>`.

A handler fails, its message waits a second, then two, then three, comes back each time, and is put aside when
it has failed once more: with everything made by us; and with the queues a GoQueue of before has left, classic
and without a TTL, because it gave each message an expiration of its own.

About `core.layouts.ladder`, `consumer.queues.layout_routes`.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.consuming import CLOCKS_S, nothing_left, post, serving, taken, until
from tests.serving import Application

from deadletter import Consumer, Message, fixed
from deadletter.core.letter import names

DELAYS_S = (0.3, 0.6, 0.9)


async def declare_all(app: Application, retries: int) -> None:
    """As its `initRetryModule` does it."""
    await app.channel.declare_queue("orders")
    await app.channel.declare_exchange("orders__retry_exchange", "topic")
    await app.channel.declare_exchange("orders__retry_dlx", "fanout")
    await app.channel.bind_queue("orders", "orders__retry_dlx", "")
    for number in range(1, retries + 1):
        name = f"orders__retry.{number}"
        await app.channel.declare_queue(name, arguments={"x-dead-letter-exchange": "orders__retry_dlx"})
        await app.channel.bind_queue(name, "orders__retry_exchange", name)


@pytest.mark.parametrize("made_by", ["us", "the document"])
async def test_it_fails_waits_comes_back_and_is_put_aside(vhost: Vhost, made_by: str) -> None:
    if made_by == "the document":
        async with Application(vhost.url) as application:
            await declare_all(application, len(DELAYS_S))
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[tuple[int, float]] = []

    @app.queue("orders", layout="ladder", retries=len(DELAYS_S), backoff=fixed(*DELAYS_S))
    async def handle(order: dict[str, int], message: Message) -> None:
        assert order == {"n": 1}
        seen.append((message.attempt, time.monotonic()))
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, b'{"n": 1}')
        await until(lambda: len(seen) == 4, "three retries", 40)
        (failed,) = await taken(vhost, "orders__dlq", 1)
    assert [attempt for attempt, _ in seen] == [0, 1, 2, 3]
    waited = [after - before for (_, before), (_, after) in pairwise(seen)]
    assert all(really >= asked - CLOCKS_S for really, asked in zip(waited, DELAYS_S, strict=True)), waited
    assert failed.body == b'{"n": 1}'
    assert failed.headers[names.CAUSE] == "retries-exhausted"
    assert failed.headers[names.ORIGIN_QUEUE] == "orders"
    await nothing_left(vhost)


async def test_what_an_old_consumer_left_waiting_still_comes_back(vhost: Vhost) -> None:
    """Published by it with an expiration, into a queue that we have taken over since."""
    async with Application(vhost.url) as application:
        await declare_all(application, len(DELAYS_S))
    app = Consumer(vhost.url, api=vhost.api)
    seen: list[dict[str, int]] = []

    @app.queue("orders", layout="ladder", retries=len(DELAYS_S), backoff=fixed(*DELAYS_S))
    async def handle(order: dict[str, int]) -> None:
        seen.append(order)

    await asyncio.to_thread(
        postbox.fill, vhost.url, "orders__retry.2", [b'{"n": 7}'], dead=False, expiration="4000"
    )
    async with serving(app):
        await until(lambda: seen == [{"n": 7}], "the message that waited")
    await nothing_left(vhost)
