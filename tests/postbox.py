"""Filling and emptying queues in broker tests, with another client: pika does not share our mistakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import pika

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.message import RawMessage
from deadletter.move.courier import Terms

_T = TypeVar("_T")


class Post(NamedTuple):
    """A message as pika sees it."""

    body: bytes
    properties: Any
    redelivered: bool
    routing_key: str

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


def declare(url: str, *queues: str, kind: str = "classic", **arguments: object) -> None:
    """Durable queues of one type; an argument `x_max_length=10` stands for `x-max-length`."""
    spelled = {name.replace("_", "-"): value for name, value in arguments.items()}
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        for queue in queues:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind, **spelled})


def fill(
    url: str,
    queue: str,
    bodies: Iterable[bytes],
    *,
    dead: bool = True,
    headers: Mapping[str, object] | None = None,
    **properties: object,
) -> int:
    """Put one message per body into the queue; `dead`: by way of an expiring queue, for an x-death."""
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        entry = f"{queue}.entry" if dead else queue
        if dead:
            channel.queue_declare(
                entry,
                durable=True,
                arguments={
                    "x-message-ttl": 0,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": queue,
                },
            )
        before = depth_of(channel, queue)
        channel.confirm_delivery()
        count = 0
        unconfirmed = connection.channel()
        for body in bodies:
            unconfirmed.basic_publish(
                "", entry, body, pika.BasicProperties(delivery_mode=2, headers=headers, **properties)
            )
            count += 1
        wait_for(lambda: depth_of(channel, queue) >= before + count, f"{count} letters in {queue}")
    return count


def depth_of(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def depth(url: str, queue: str) -> int:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        return depth_of(connection.channel(), queue)


def consumers(url: str, queue: str) -> int:
    """How many the queue has; what one held that is gone is back when it is not counted any more."""
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.consumer_count)


def drain(url: str, queue: str, *, expect: int | None = None) -> list[Post]:
    """Take everything out of the queue; waits until `expect` are there: being given back takes a while."""
    posts: list[Post] = []
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        if expect is not None:
            wait_for(lambda: depth_of(channel, queue) >= expect, f"{expect} letters in {queue}")
        channel.basic_qos(prefetch_count=2000)
        until = time.monotonic() + 120.0
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.5):
            if method is None:
                # What is on its way is not counted any more, and may take its time on a loaded machine.
                awaited = expect is not None and len(posts) < expect and time.monotonic() < until
                if not awaited and depth_of(channel, queue) == 0:
                    break
                continue
            posts.append(Post(body, properties, method.redelivered, method.routing_key))
            channel.basic_ack(method.delivery_tag)
    return posts


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.05)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as the command line does, on uvloop."""
    import uvloop

    return uvloop.run(work)


async def with_channel(url: str, work: Callable[[Channel], Coroutine[Any, Any, _T]]) -> _T:
    """A channel of our own client, for what pika cannot do: bytes it would not let through."""
    connection = await connect(parse_addresses(url)[0])
    try:
        channel = await connection.channel()
        return await work(channel)
    finally:
        await connection.close()


def publish_raw(url: str, queue: str, *messages: RawMessage) -> None:
    async def work(channel: Channel) -> None:
        await channel.select_confirms()
        outcome = await publish_all(channel, "", queue, messages)
        assert outcome.confirmed == len(messages), outcome

    run(with_channel(url, work))


def take_raw(url: str, queue: str, *, requeue: bool = False) -> list[RawMessage]:
    """Everything in the queue as raw bytes, one `get` at a time."""

    async def work(channel: Channel) -> list[RawMessage]:
        found: list[RawMessage] = []
        while (delivery := await channel.get(queue)) is not None:
            found.append(delivery.message)
            if not requeue:
                channel.ack(delivery.tag)
        await channel.close()
        await asyncio.sleep(0.05)
        return found

    return run(with_channel(url, work))


def fill_one(url: str, queue: str, body: bytes) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        connection.channel().basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def slow(rate_per_s: float) -> Terms:
    """Terms of a move that lasts long enough for something to happen to it."""
    return Terms(rate_per_s=rate_per_s)
