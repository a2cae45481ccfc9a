"""Wrappers and strange ends inside other frameworks: nothing is acked whose work did not run.

aio-pika, pika and FastStream call what they were given; a plain function around an async handler only makes
its coroutine, and the adapter would have acked the message.

About `adapters.aio_pika`, `adapters.pika`, `adapters.faststream`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue
from tests.brokers import Vhost
from tests.consuming import until
from tests.postbox import depth, drain, fill

import deadletter.adapters.aio_pika as with_aio_pika
import deadletter.adapters.pika as with_pika
from deadletter.adapters.faststream import with_retries
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event
from deadletter.core.letter import names
from deadletter.errors import UsageError

RETRY = "orders__retry.1"


class OwnEnd(BaseException):
    """Of the application, and no Exception."""


def plainly_around(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


async def test_aio_pika_runs_what_a_wrapper_hands_out_and_judges_every_end(vhost: Vhost) -> None:
    done: list[bytes] = []
    facts: list[Event] = []

    @with_aio_pika.retrying(vhost.url, queue="orders", listener=facts.append, retries=1, backoff=fixed(600))
    @plainly_around
    async def on_message(message: AbstractIncomingMessage) -> None:
        await asyncio.sleep(0)
        if message.body == b"own":
            raise OwnEnd
        if message.body == b"cancelled":
            raise asyncio.CancelledError
        done.append(message.body)

    await on_message.prepare(api=vhost.api)
    await asyncio.to_thread(fill, vhost.url, "orders", [b"own", b"cancelled", b"good"], dead=False)
    async with await aio_pika.connect(vhost.url) as connection:
        channel = await connection.channel()
        await (await channel.get_queue("orders")).consume(on_message)
        await until(lambda: len(facts) == 2, "both failures")  # told when they are acked
        await until(lambda: bool(done), "the good one")
    await on_message.close()
    assert done == [b"good"]
    failed = {post.body: post.headers[names.ERROR_TYPE] for post in drain(vhost.url, RETRY)}
    assert failed[b"own"].endswith("OwnEnd")
    assert failed[b"cancelled"].endswith("CancelledError")
    assert depth(vhost.url, "orders") == 0


def test_pika_fails_what_it_cannot_run(vhost: Vhost) -> None:
    seen: list[bytes] = []

    async def work(body: bytes) -> None:
        seen.append(body)

    @with_pika.retrying(queue="orders", retries=1, backoff=fixed(600))
    def on_message(_channel: Any, _method: Any, _properties: Any, body: bytes) -> Any:
        if body == b"own":
            raise OwnEnd
        return work(body) if body == b"coroutine" else None

    on_message.prepare(vhost.url, api=vhost.api)
    fill(vhost.url, "orders", [b"own", b"coroutine", b"good"], dead=False)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("orders", on_message)
        for _ in range(600):
            connection.process_data_events(0.1)
            if depth(vhost.url, RETRY) == 2 and depth(vhost.url, "orders") == 0:
                break
        channel.cancel()
    failed = {post.body: post.headers[names.ERROR_TYPE] for post in drain(vhost.url, RETRY, expect=2)}
    assert set(failed) == {b"own", b"coroutine"}
    assert failed[b"coroutine"].endswith("UsageError")
    assert not seen


async def test_faststream_runs_what_a_wrapper_hands_out(vhost: Vhost) -> None:
    done: list[str] = []
    retries = with_retries(vhost.url, retries=1, backoff=fixed(600))
    broker = RabbitBroker(vhost.url, middlewares=[retries])

    def lazily(body: str) -> Iterator[str]:
        yield body

    async def work(body: str) -> None:
        await asyncio.sleep(0)
        done.append(body)

    def handle(body: str) -> Any:
        return lazily(body) if body == "lazy" else work(body)

    broker.subscriber(RabbitQueue("orders", declare=False), ack_policy=AckPolicy.NACK_ON_ERROR)(handle)
    await retries.prepare(broker, api=vhost.api)
    await asyncio.to_thread(
        fill, vhost.url, "orders", [b"lazy", b"good"], dead=False, content_type="text/plain"
    )
    async with broker:
        await broker.start()
        await until(lambda: bool(done), "the good one")
        await until(lambda: depth(vhost.url, RETRY) == 1, "the failure")
    await retries.close()
    assert done == ["good"]
    (failed,) = drain(vhost.url, RETRY, expect=1)
    assert failed.body == b"lazy"
    assert depth(vhost.url, "orders") == 0


async def generates(_: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generates, plainly_around(generates)])
def test_generators_are_refused(function: Any) -> None:
    with pytest.raises(UsageError, match="generator function"):
        with_aio_pika.retrying("amqp://localhost:1/", queue="orders")(function)
    with pytest.raises(UsageError, match="generator function"):
        with_pika.retrying(queue="orders")(function)


def test_pika_refuses_an_async_callback() -> None:
    async def on_message(*_: Any) -> None: ...

    with pytest.raises(UsageError, match="never runs"):
        with_pika.retrying(queue="orders")(on_message)
