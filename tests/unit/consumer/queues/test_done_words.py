"""A consumer that is done with a letter of a replay says so, and of no other message.

About `consumer.queues.done_words`, `consumer.queues.settling`, `consumer.queues.layout_routes`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deadletter import Consumer, fixed
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import View, encode, view
from deadletter.testing.memory import MemoryBroker, virtual_time

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("layout", ["return", "loop"])
async def test_done_is_said_of_letters_of_a_replay_alone(layout: Any) -> None:
    app = Consumer("amqp://broker.example")

    @app.queue("orders", layout=layout, retries=1, backoff=fixed(1))
    async def handle(order: str) -> None:
        if order == "fails":
            raise ValueError(order)

    with virtual_time() as clock:
        broker = MemoryBroker("4.0.5", clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        channel = await (await broker.connect()).channel()
        await channel.declare_queue(names.OUTCOMES)
        ours: dict[str, Value] = {
            names.ID: ID,
            names.ORIGIN_QUEUE: "orders",
            names.REPLAY: "7",
            names.ATTEMPT: 0,
        }
        copied: dict[str, Value] = {
            **ours,
            names.ORIGIN_QUEUE: "another queue",
        }  # an application copied these headers
        plain: dict[str, Value] = {names.ID: ID, names.ORIGIN_QUEUE: "orders"}
        publishing = channel.publishing("", "orders", mandatory=True)
        for headers, body in ((ours, b"done"), (copied, b"done"), (plain, b"done"), (ours, b"fails")):
            channel.publish(publishing, encode(View(headers=headers)), body)
        await clock.advance(30)
        (word,) = broker.messages(names.OUTCOMES)
        told = view(word.properties).headers or {}
        assert (word.body, told[names.ID], told[names.REPLAY]) == (b"", ID, "7")
        assert isinstance(told[names.DONE_AT], int)
        app.stop()
        await serving


async def test_without_the_queue_nothing_happens() -> None:
    done: list[str] = []
    app = Consumer("amqp://broker.example")

    @app.queue("orders", layout="return")
    async def handle(order: str) -> None:
        done.append(order)

    with virtual_time() as clock:
        broker = MemoryBroker("3.10.8", clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        channel = await (await broker.connect()).channel()
        headers = {names.ID: ID, names.ORIGIN_QUEUE: "orders", names.REPLAY: "7"}
        for number in range(3):
            publishing = channel.publishing("", "orders", mandatory=True)
            channel.publish(publishing, encode(View(headers=headers)), b"%d" % number)
        await clock.advance(5)
        assert done == ["0", "1", "2"]
        assert broker.messages("orders") == []
        app.stop()
        await serving
