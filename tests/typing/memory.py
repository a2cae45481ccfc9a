"""A test of an application, on the memory broker."""

from __future__ import annotations

import asyncio
from typing import assert_type

from deadletter import Consumer, fixed
from deadletter.testing.memory import (
    Clock,
    LoopClock,
    MemoryBroker,
    MemoryConnection,
    VirtualClock,
    settle,
    virtual_time,
)

app = Consumer("amqp://host")


@app.queue("orders", layout="ladder", retries=1, backoff=fixed(60))
async def handle(order: str) -> None: ...


async def test_it() -> None:
    with virtual_time(patience_s=1, grace_s=0) as clock:
        assert_type(clock, LoopClock)
        broker = MemoryBroker("4.3.6", clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        connection = await broker.connect()
        assert_type(connection, MemoryConnection)
        channel = await connection.channel()
        await channel.declare_queue("audit", arguments={"x-message-ttl": 60_000})
        channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", b"order 17")
        await clock.advance(61)
        assert_type(broker.depth("orders"), int)
        assert_type(broker.unacked("orders") + broker.held("orders"), int)
        bodies: list[bytes] = [message.body for message in broker.messages("orders")]
        broker.refuse_publishes("orders")
        broker.refuse_publishes("orders", refuse=False)
        broker.block("low on memory")
        broker.unblock()
        broker.cut(connection)
        broker.cut()
        await broker.restart()
        await settle()
        app.stop()
        await serving
        assert bodies == []


async def test_its_time_alone() -> None:
    clock = VirtualClock()
    clocks: list[Clock] = [clock, LoopClock()]
    broker = MemoryBroker(clock=clocks[0], scramble=7)
    await clock.advance(600)
    assert broker.depth("orders") == 0
