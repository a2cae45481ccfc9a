"""Inside other frameworks: neither the next place of a letter takes it nor its own queue.

Given back, a quorum queue of RabbitMQ 4 would destroy it after its twentieth return. It has to stay in hand
until a place takes it, the line is lost, or the application ends; and the framework must not settle it.

About `adapters.aio_pika`, `adapters.pika`, `adapters.faststream`, `adapters.rulings`, `adapters.outbox`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue
from tests.brokers import Vhost, call
from tests.consuming import until
from tests.postbox import depth, drain, fill

import deadletter.adapters.aio_pika as with_aio_pika
import deadletter.adapters.pika as with_pika
from deadletter.adapters import terms
from deadletter.adapters.faststream import with_retries
from deadletter.adapters.terms import AdapterWishes
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled, Listener
from deadletter.core.letter import names

QUEUE = "orders"
RETRY = f"{QUEUE}__retry.1"
NO_WRITE = {"configure": ".*", "write": "^$", "read": ".*"}
RETRY_ONLY = {"configure": ".*", "write": f"^{QUEUE}__retry_exchange$", "read": ".*"}
TRIES = 12

Handle: TypeAlias = Callable[[], None]
Close: TypeAlias = Callable[[], Any]
Consuming: TypeAlias = Callable[[str, Handle, Listener], AbstractAsyncContextManager[Close]]
WISHES: AdapterWishes = {"retries": 1, "backoff": fixed(600)}


@asynccontextmanager
async def by_aio_pika(url: str, handle: Handle, listener: Listener) -> AsyncIterator[Close]:
    @with_aio_pika.retrying(url, queue=QUEUE, listener=listener, **WISHES)
    async def on_message(_message: AbstractIncomingMessage) -> None:
        handle()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        await (await channel.get_queue(QUEUE)).consume(on_message)
        yield on_message.close
    await on_message.close()


@asynccontextmanager
async def by_pika(url: str, handle: Handle, listener: Listener) -> AsyncIterator[Close]:
    """Stopped as pika says: by a callback from another thread."""

    @with_pika.retrying(queue=QUEUE, listener=listener, **WISHES)
    def on_message(_channel: Any, _method: Any, _properties: Any, _body: bytes) -> None:
        handle()

    consuming: list[Any] = []
    begun = threading.Event()

    def consume() -> None:
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(QUEUE, on_message)
            consuming.extend((connection, channel))
            begun.set()
            channel.start_consuming()

    async def close() -> None:
        on_message.close()

    thread = asyncio.create_task(asyncio.to_thread(consume))
    await asyncio.to_thread(begun.wait)
    try:
        yield close
    finally:
        on_message.close()
        connection, channel = consuming
        connection.add_callback_threadsafe(channel.stop_consuming)
        await thread


def by_faststream(policy: AckPolicy) -> Consuming:
    @asynccontextmanager
    async def consuming(url: str, handle: Handle, listener: Listener) -> AsyncIterator[Close]:
        retries = with_retries(url, listener=listener, **WISHES)
        broker = RabbitBroker(url, middlewares=[retries], logger=None, graceful_timeout=1)

        @broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=policy)
        async def handler(_body: bytes) -> None:
            handle()

        async with broker:
            await broker.start()
            yield retries.close
        await retries.close()

    return consuming


each = pytest.mark.parametrize(
    "consuming",
    [
        pytest.param(by_aio_pika, id="aio-pika"),
        pytest.param(by_pika, id="pika"),
        pytest.param(by_faststream(AckPolicy.NACK_ON_ERROR), id="faststream"),
        pytest.param(by_faststream(AckPolicy.REJECT_ON_ERROR), id="faststream-reject"),
        pytest.param(by_faststream(AckPolicy.MANUAL), id="faststream-manual"),
    ],
)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_aio_pika, "PAUSES_S", (0.0,))
    monkeypatch.setattr(with_pika, "PAUSES_S", (0.0,))
    monkeypatch.setattr(terms, "IN_HAND_PAUSES_S", (0.05, 0.1))


@pytest.fixture
def reader(vhost: Vhost) -> str:
    """The URL of a user that may write nowhere, with a layout whose first rung is gone and one letter."""
    user = f"reader-{vhost.name.rpartition('/')[2]}"
    call(vhost.broker, "PUT", "users", user, content={"password": "secret", "tags": ""})
    allow(vhost, user, NO_WRITE)

    lay(vhost)
    vhost.delete("queues", RETRY)
    fill(vhost.url, QUEUE, [b"1"], dead=False, message_id="m-1")
    parts = urlsplit(vhost.url)
    return parts._replace(netloc=f"{user}:secret@{parts.hostname}:{parts.port}").geturl()


def lay(vhost: Vhost) -> None:
    @with_pika.retrying(queue=QUEUE, **WISHES)
    def nothing(*_: Any) -> None: ...

    nothing.prepare(vhost.url, api=vhost.api)


def allow(vhost: Vhost, user: str, rights: dict[str, str]) -> None:
    call(vhost.broker, "PUT", "permissions", vhost.name, user, content=rights)


class Failing:
    """A handler, and what was told of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.facts: list[Handled] = []

    def handle(self) -> None:
        self.calls += 1
        raise TimeoutError("not now")

    def hear(self, event: Event) -> None:
        if isinstance(event, Handled):
            self.facts.append(event)

    def in_vain(self) -> bool:
        return sum(fact.fate is Fate.STUCK for fact in self.facts) >= TRIES


@each
async def test_what_no_place_takes_stays_in_hand_until_one_does(
    vhost: Vhost, reader: str, consuming: Consuming
) -> None:
    failing = Failing()
    async with consuming(reader, failing.handle, failing.hear):
        await until(failing.in_vain, "many tries")
        assert failing.calls == 1  # it was never given back
        await asyncio.to_thread(lay, vhost)
        allow(vhost, urlsplit(reader).username or "", RETRY_ONLY)
        await until(lambda: failing.facts[-1].fate is Fate.RETRIED, "its next place")
    assert failing.calls == 1
    (letter,) = await asyncio.to_thread(drain, vhost.url, RETRY, expect=1)
    assert (letter.body, letter.properties.message_id) == (b"1", "m-1")
    assert await asyncio.to_thread(depth, vhost.url, QUEUE) == 0


@each
async def test_what_is_in_hand_at_the_end_is_the_brokers_again(
    vhost: Vhost, reader: str, consuming: Consuming
) -> None:
    failing = Failing()
    async with consuming(reader, failing.handle, failing.hear) as close:
        await until(failing.in_vain, "many tries")
        await close()
    told = len(failing.facts)
    (letter,) = await asyncio.to_thread(drain, vhost.url, QUEUE, expect=1)
    assert letter.body == b"1"
    assert letter.headers.get(names.X_DELIVERY_COUNT, 0) <= 1  # that its channel was closed costs one at most
    assert await asyncio.to_thread(depth, vhost.url, f"{QUEUE}__dlq") == 0
    assert failing.calls == 1
    assert len(failing.facts) - told <= 1


@each
# A framework whose connection is cut while it connects anew may leave a socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_what_is_in_hand_when_the_line_is_lost_is_published_nowhere(
    vhost: Vhost, reader: str, consuming: Consuming
) -> None:
    """Its queue has it again: another consumer may be at work with it."""
    failing = Failing()
    with suppress(pika.exceptions.AMQPError, aio_pika.exceptions.AMQPError):  # the framework tells it, or not
        async with consuming(reader, failing.handle, failing.hear):
            await until(failing.in_vain, "many tries")
            user = urlsplit(reader).username or ""
            allow(vhost, user, {**NO_WRITE, "read": "^$"})  # who connects anew does not get it again
            cut = ("close_all_connections", "--vhost", vhost.name, "the cable is cut")
            await asyncio.to_thread(vhost.broker.rabbitmqctl, *cut)
            await asyncio.to_thread(lay, vhost)
            allow(vhost, user, {**RETRY_ONLY, "read": "^$"})  # now it could be published
            await asyncio.sleep(1)
    (letter,) = await asyncio.to_thread(drain, vhost.url, QUEUE, expect=1)
    assert letter.body == b"1"
    assert await asyncio.to_thread(depth, vhost.url, RETRY) == 0
    assert await asyncio.to_thread(depth, vhost.url, f"{QUEUE}__dlq") == 0
