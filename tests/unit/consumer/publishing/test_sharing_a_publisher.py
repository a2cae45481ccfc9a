"""Many publish at a time and none takes the publisher from another; an option that there is not is refused.

About `consumer.publishing.shared_mail`, `consumer.publishing.publications`, `consumer.app`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deadletter import Consumer, Message
from deadletter.consumer.publishing.publications import PublishOptions, publication
from deadletter.errors import UsageError
from deadletter.testing.memory import MemoryBroker, virtual_time


def consumer(done: list[str]) -> Consumer:
    """What it handles it publishes to `copies`."""
    app = Consumer("amqp://broker.example")

    @app.queue("orders", retries=0)
    async def handle(body: str, message: Message) -> None:
        await message.publish(body, key="copies")
        done.append(body)

    return app


async def declared(broker: MemoryBroker, *queues: str) -> None:
    async with await (await broker.connect()).channel() as channel:
        for queue in queues:
            await channel.declare_queue(queue)


# -- together ------------------------------------------------------------------------------------------------
async def test_who_leaves_first_takes_nothing_from_the_others() -> None:
    app = consumer([])
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        await declared(broker, "orders")

        async def request(seconds: float) -> None:
            async with app.publishing(broker):
                await asyncio.sleep(seconds)
                await app.publish("one", key="orders")

        await asyncio.gather(request(1), request(2), request(1.5))
        assert broker.depth("orders") == 3
        with pytest.raises(UsageError, match="got neither"):
            await app.publish("one", key="orders")
        await request(0)
        assert broker.depth("orders") == 4


async def test_a_consumer_publishes_after_the_block_in_which_it_began() -> None:
    done: list[str] = []
    app = consumer(done)
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        await declared(broker, "copies")
        async with app.publishing(broker):
            serving = asyncio.create_task(app.serve(broker))
            await clock.advance(1)
        await app.publish("one", key="orders")
        async with app.publishing():  # as an application's own code says it, wherever it is run
            await app.publish("two", key="orders")
        await clock.advance(1)
        assert sorted(done) == ["one", "two"]
        assert broker.depth("copies") == 2
        app.stop()
        await serving


async def test_two_brokers_at_a_time_are_refused() -> None:
    app = consumer([])
    with virtual_time() as clock:
        broker, other = MemoryBroker(clock=clock), MemoryBroker(clock=clock)
        async with app.publishing(broker):
            with pytest.raises(UsageError, match=r"expected a memory broker, .* got another memory broker"):
                await app.publishing(other).__aenter__()
            with pytest.raises(UsageError, match=r"expected a memory broker, .* got the broker of the URL"):
                await app.serve()
        async with app.publishing():
            with pytest.raises(UsageError, match=r"expected the broker of the URL, .* got a memory broker"):
                await app.serve(broker)
        serving = asyncio.create_task(app.serve(broker))  # and nothing of it is left
        await clock.advance(1)
        await app.publish("one", key="orders")
        app.stop()
        await serving


# -- options -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("routing_key", r"did you mean key\?"),
        ("id", r"did you mean message_id\?"),
        ("expire", r"did you mean expiration\?"),
        ("msg_type", r"did you mean type\?"),
        ("header", r"did you mean headers\?"),
        ("Exchange", r"did you mean exchange\?"),
        ("zzz", "there are exchange, key, app_id, "),
    ],
)
def test_an_option_that_there_is_not_is_refused(name: str, hint: str) -> None:
    options: Any = {"message_id": "1", name: "x"}
    with pytest.raises(UsageError, match=rf"got '{name}' \({hint}"):
        publication(b"", exchange="", key="q", options=options)


def test_every_option_that_there_is_is_taken() -> None:
    options: Any = {**dict.fromkeys(PublishOptions.__annotations__), "message_id": "1"}
    assert publication(b"", exchange="", key="q", options=options).message_id == "1"


async def test_a_misspelt_option_of_publish_sends_nothing() -> None:
    app = consumer([])
    misspelt: Any = {"routing_key": "orders"}
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        await declared(broker, "orders")
        async with app.publishing(broker):
            with pytest.raises(UsageError, match=r"got 'routing_key' \(did you mean key"):
                await app.publish("one", key="orders", **misspelt)
        assert broker.depth("orders") == 0
