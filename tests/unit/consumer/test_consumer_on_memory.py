"""The consumer on the memory broker, in virtual time: what an application's author would test.

About `consumer.app`, `consumer.handlers.calling`, `consumer.serving`, `consumer.queues.queue_consumer`,
`consumer.queues.workers`, `testing.memory.broker`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from tests.paths import ROOT

from deadletter import Consumer, RetryLater, exponential, fixed, linear, park
from deadletter.consumer.events import Handled
from deadletter.core.letter import names
from deadletter.core.letter.message import view
from deadletter.testing.memory import MemoryBroker, virtual_time

PLACES = {
    "return": "deadletter.parked", "ladder": "orders__dlq", "loop": "orders.dlq", "native": "orders.dlq"
}  # fmt: skip


@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.3.6"])
@pytest.mark.parametrize("layout", ["return", "ladder", "loop", "native"])
async def test_so_many_tries_and_then_aside(layout: Any, version: str) -> None:
    if layout == "native" and version != "4.3.6":
        return  # refused there, which the layouts' own tests show
    tries: list[float] = []
    app = Consumer("amqp://broker.example", service="shop")

    @app.queue("orders", layout=layout, retries=3, backoff=fixed(60))
    async def handle(order: str) -> None:
        tries.append(clock.time())
        raise ConnectionError(f"no way to pay for {order}")

    with virtual_time() as clock:
        broker = MemoryBroker(version, clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        channel = await (await broker.connect()).channel()
        channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", b"order 17")
        await clock.advance(300)
        assert [round(later - earlier) for earlier, later in itertools.pairwise(tries)] == [60] * 3
        (aside,) = broker.messages(PLACES[layout])
        assert aside.body == b"order 17"
        headers = view(aside.properties).headers or {}
        assert headers[names.CAUSE] == "retries-exhausted"
        assert headers[names.ERROR_TYPE] == "ConnectionError"
        assert headers[names.ERROR_SERVICE] == "shop"
        app.stop()
        await serving


async def test_each_error_has_its_own_delay_and_nobody_blocks() -> None:
    done: dict[str, float] = {}
    failed: set[str] = set()
    app = Consumer("amqp://broker.example")

    @app.queue(
        "orders",
        layout="return",
        retries=5,
        backoff=exponential(1, cap=600),
        on={TimeoutError: fixed(60), KeyError: park},
    )
    async def handle(order: str) -> None:
        if order not in failed:
            failed.add(order)
            match order:
                case "slow":
                    raise TimeoutError
                case "broken":
                    raise KeyError(order)
                case "asked":
                    raise RetryLater(after=7)
                case _:
                    raise ValueError(order)
        done[order] = clock.time() - began

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        began = clock.time()
        channel = await (await broker.connect()).channel()
        for body in (b"slow", b"quick", b"broken", b"asked"):
            channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", body)
        await clock.advance(120)
        assert {order: round(seconds) for order, seconds in done.items()} == {
            "quick": 1, "asked": 7, "slow": 60
        }  # fmt: skip
        assert broker.depth("deadletter.parked") == 1
        app.stop()
        await serving


async def test_auto_is_return_on_every_broker() -> None:
    chosen: dict[str, tuple[str, ...]] = {}
    for version in ("3.10.8", "4.3.6"):
        app = Consumer("amqp://broker.example")

        @app.queue("orders", retries=3, backoff=linear(1))
        async def handle(order: bytes) -> None: ...

        with virtual_time() as clock:
            said: list[Any] = []
            app.listen(said.append)
            serving = asyncio.create_task(app.serve(MemoryBroker(version, clock=clock)))
            await clock.advance(1)
            chosen[version] = next(event.layouts for event in said if type(event).__name__ == "Ready")
            app.stop()
            await serving
    assert chosen == {"3.10.8": ("return",), "4.3.6": ("return",)}


async def test_a_cut_line_loses_nothing() -> None:
    done: list[str] = []
    app = Consumer("amqp://broker.example")

    @app.queue("orders", layout="ladder", retries=3, backoff=fixed(10))
    async def handle(order: str) -> None:
        await asyncio.sleep(1)
        done.append(order)

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        connection = await broker.connect()
        channel = await connection.channel()
        for number in range(30):
            channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", b"%d" % number)
        await clock.advance(1.5)
        broker.cut()
        await clock.advance(60)
        assert set(done) == {str(number) for number in range(30)}
        assert broker.depth("orders") == broker.unacked("orders") == 0
        app.stop()
        await serving


async def test_time_stands_still_while_a_plain_handler_works() -> None:
    """It works for a moment of real time, in which virtual days could pass: its timeout must not."""
    ended: list[str] = []
    told: list[str] = []
    app = Consumer("amqp://broker.example")
    app.listen(lambda event: told.append(event.fate.value) if isinstance(event, Handled) else None)

    @app.queue("orders", layout="ladder", retries=3, backoff=fixed(10), timeout=30)
    def handle(order: str) -> None:
        time.sleep(0.3)
        ended.append(order)

    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        channel = await (await broker.connect()).channel()
        channel.publish(channel.publishing("", "orders", mandatory=True), b"\0\0", b"17")
        await asyncio.sleep(3600)
        assert (ended, told) == (["17"], ["done"])
        app.stop()
        await serving


async def test_the_page_tells_the_truth() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    section = page.split("## With the consumer library")[1].split("```python\n")[1].split("```")[0]
    space: dict[str, Any] = {}
    exec(compile(section, "docs/testing.md", "exec"), space)  # our own page
    await space["test_an_order_is_tried_four_times_and_then_put_aside"]()
