"""Our AMQP client on a real broker: many channels at once, errors by name, consumers that are ended.

About `amqp.connection`, `amqp.channel`, `amqp.publisher`, `broker.session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.broker.session import Link
from deadletter.core.letter.message import RawMessage
from deadletter.errors import (
    ChannelsExhausted,
    ConnectionForced,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)


def on_connection(vhost: Vhost, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        connection = await connect(parse_addresses(vhost.url)[0])
        try:
            await work(connection)
        finally:
            await connection.close()

    postbox.run(connected())


def test_a_goodbye_that_is_cancelled_hangs_up(vhost: Vhost) -> None:
    """Whoever ends a task that is just closing leaves no socket behind."""

    async def work(connection: Connection) -> None:
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        assert connection.closed.done()

    on_connection(vhost, work)


def test_a_link_whose_goodbyes_never_began_hangs_up(vhost: Vhost) -> None:
    """A task that is cancelled before its first step runs nothing of its own, no `finally` either."""

    async def work() -> None:
        link = Link(parse_addresses(vhost.url)[0], "test")
        connections = [await link.connection(purpose) for purpose in ("consume", "publish")]
        closing = asyncio.create_task(link.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        assert all(connection.closed.done() for connection in connections)

    postbox.run(work())


def test_two_hundred_channels_at_once(vhost: Vhost) -> None:
    async def one(connection: Connection, number: int) -> None:
        channel = await connection.channel()
        queue = f"queue {number} größe|*"
        await channel.declare_queue(queue)
        await channel.select_confirms()
        outcome = await publish_all(channel, "", queue, [RawMessage(b"\0\0", b"%d" % n) for n in range(20)])
        assert outcome.confirmed == 20
        for n in range(20):
            delivery = await channel.get(queue)
            assert delivery is not None
            assert delivery.message.body == b"%d" % n
            channel.ack(delivery.tag)
        assert await channel.get(queue) is None
        await channel.close()

    async def work(connection: Connection) -> None:
        await asyncio.gather(*(one(connection, number) for number in range(200)))

    on_connection(vhost, work)


def test_every_channel_number_can_be_used_and_used_again(vhost: Vhost) -> None:
    async def work(connection: Connection) -> None:
        channels = [await connection.channel() for _ in range(connection.channel_max)]
        with pytest.raises(ChannelsExhausted, match=str(connection.channel_max)):
            await connection.channel()
        await channels[7].close()
        assert (await connection.channel()).number == channels[7].number

    on_connection(vhost, work)


def test_errors_have_names_and_cost_one_channel(vhost: Vhost) -> None:
    async def work(connection: Connection) -> None:
        other = await connection.channel()
        await other.declare_queue("there")
        with pytest.raises(NotFound, match="no queue 'missing'"):
            await (await connection.channel()).declare_queue("missing", passive=True)
        channel = await connection.channel()
        with pytest.raises(PreconditionFailed, match="x-max-length"):
            await channel.declare_queue("there", arguments={"x-max-length": 1})
        with pytest.raises(PreconditionFailed):
            await channel.declare_queue("there")
        await other.declare_queue("ours", exclusive=True)
        second = await connect(connection.address)
        with pytest.raises(ResourceLocked):
            await (await second.channel()).declare_queue("ours", exclusive=True)
        await second.close()
        assert (await other.declare_queue("there", passive=True)).message_count == 0

    on_connection(vhost, work)


def test_a_consumer_whose_queue_is_deleted_is_told(vhost: Vhost) -> None:
    async def work(connection: Connection) -> None:
        channel = await connection.channel()
        await channel.declare_queue("doomed")
        ended = asyncio.Event()
        await channel.consume("doomed", lambda _delivery: None, ended.set)
        await (await connection.channel()).delete_queue("doomed")
        async with asyncio.timeout(60):
            await ended.wait()
        assert channel.error is None, "the channel lives on"

    on_connection(vhost, work)


def test_shapes(vhost: Vhost) -> None:
    async def work(connection: Connection) -> None:
        channel = await connection.channel()
        await channel.declare_exchange("topic", "topic")
        await channel.declare_queue("q")
        await channel.bind_queue("q", "topic", "a.#")
        await channel.select_confirms()
        assert (await publish_all(channel, "topic", "a.b", [RawMessage(b"\0\0", b"x")])).confirmed == 1
        await channel.unbind_queue("q", "topic", "a.#")
        outcome = await publish_all(channel, "topic", "a.b", [RawMessage(b"\0\0", b"x")] * 3)
        assert (outcome.confirmed, len(outcome.returned)) == (0, 3)
        assert outcome.returned[0].code == 312
        assert await channel.purge_queue("q") == 1
        await channel.delete_exchange("topic")
        assert await channel.delete_queue("q") == 0

    on_connection(vhost, work)


def test_a_consumer_gives_back_by_reject_and_nack(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "q")
    postbox.fill(vhost.url, "q", [b"a", b"b", b"c"], dead=False)

    async def work(connection: Connection) -> None:
        channel: Channel = await connection.channel()
        got: list[Delivery] = []
        arrived = asyncio.Event()

        def on_delivery(delivery: Delivery) -> None:
            got.append(delivery)
            if len(got) == 3:
                arrived.set()

        tag = await channel.consume("q", on_delivery, lambda: None)
        async with asyncio.timeout(60):
            await arrived.wait()
        await channel.cancel(tag)
        channel.reject(got[0].tag, requeue=True)
        channel.nack(got[1].tag, requeue=True)
        channel.ack(got[2].tag)
        await channel.close()

    on_connection(vhost, work)
    assert [(p.body, p.redelivered) for p in postbox.drain(vhost.url, "q", expect=2)] == [
        (b"a", True),
        (b"b", True),
    ]


def test_an_operator_closes_the_connection(vhost: Vhost) -> None:
    async def work(connection: Connection) -> None:
        channel = await connection.channel()
        await asyncio.to_thread(vhost.broker.rabbitmqctl, "close_all_connections", "--global", "maintenance")
        async with asyncio.timeout(60):
            error = await connection.closed
        assert isinstance(error, ConnectionForced)
        assert "maintenance" in str(error)
        with pytest.raises(ConnectionForced):
            await channel.declare_queue("x")

    on_connection(vhost, work)
