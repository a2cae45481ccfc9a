"""A consumer under test, its letters, and a line to the broker that is cut at the right moment.

The queue is `orders`, and what a layout calls the place for letters that are put aside is in `ASIDE`. Letters
are published and taken with another client (`postbox`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost

from deadletter import Consumer
from deadletter.amqp.address import Address, parse_addresses
from deadletter.consumer.events import Event, Handled, Lost
from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.cuttable_line import Plug
from deadletter.testing.node.private import PrivateBroker

ASIDE = {
    "return": names.PARKED,
    "ladder": "orders__dlq",
    "loop": "orders.dlq",
    "native": "orders.dlq",
    "external": "orders.dlq",
}
"""Where a letter is put aside."""
PUBLISHING: tuple[LayoutName, ...] = ("return", "ladder", "loop", "native")
"""Layouts in which we put letters aside ourselves, with what we know."""
ALL: tuple[LayoutName, ...] = (*PUBLISHING, "external")
DELAY_S = 0.5
CLOCKS_S = 0.005
"""RabbitMQ counts whole milliseconds on a clock of its own."""
HEADERS: dict[str, object] = {"tenant": "acme", "trace": "00-4bf92f-01"}
SUSPECT: dict[str, object] = {**HEADERS, names.DELIVERIES: 2, names.ORIGIN_QUEUE: "orders"}
"""Of a letter whose consumer died twice: it is handled alone."""


def has_native(broker: PrivateBroker) -> bool:
    return tuple(int(part) for part in broker.version.split(".")[:3]) >= (4, 3, 1)


def on_this_broker(layout: LayoutName, broker: PrivateBroker) -> LayoutName:
    """Skips what the broker does not have."""
    if layout == "native" and not has_native(broker):
        pytest.skip("this broker has no native retries; that the layout is refused there has its own test")
    return layout


each_publishing = pytest.mark.parametrize("layout", PUBLISHING, indirect=True)
each = pytest.mark.parametrize("layout", ALL, indirect=True)


def declare_orders(vhost: Vhost, layout: str) -> None:
    """As the application does it: with a dead-letter queue where the layout expects one, else plain."""
    if layout != "external":
        postbox.declare(vhost.url, "orders", kind="quorum")
        return
    postbox.declare(vhost.url, "orders.dlq", kind="quorum")
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "orders.dlq"}
    postbox.declare(vhost.url, "orders", kind="quorum", **dead)


def consumer(vhost: Vhost, layout: str, url: str | None = None) -> Consumer:
    if layout == "external":
        declare_orders(vhost, layout)
    return Consumer(url or vhost.url, api=vhost.api, service="shop", release="1.2.3")


class Heard:
    """What the consumer told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def handled(self) -> list[Handled]:
        return [event for event in self.events if isinstance(event, Handled)]

    @property
    def lost(self) -> list[Lost]:
        return [event for event in self.events if isinstance(event, Lost)]


@asynccontextmanager
async def serving(app: Consumer) -> AsyncIterator[Heard]:
    """The consumer runs within; whatever ended it is raised."""
    heard = Heard()
    app.listen(heard.events.append)
    task = asyncio.create_task(app.serve())
    await asyncio.sleep(0)
    assert app.ready is not None
    ready = asyncio.create_task(app.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield heard
    finally:
        app.stop()
        await asyncio.wait_for(task, 60)


async def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        await asyncio.sleep(0.02)


async def post(vhost: Vhost, *bodies: bytes, headers: dict[str, object] = HEADERS, **more: str) -> None:
    """Confirmed and mandatory; whoever consumes the queue may have them at once."""

    def work() -> None:
        properties = pika.BasicProperties(
            delivery_mode=2, content_type="application/json", message_id="m-1", headers=headers, **more
        )
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", "orders", body, properties, mandatory=True)

    await asyncio.to_thread(work)


async def depth(vhost: Vhost, queue: str) -> int:
    return await asyncio.to_thread(postbox.depth, vhost.url, queue)


async def until_depth(vhost: Vhost, queue: str, count: int) -> None:
    """Until so many messages of a queue are ready."""
    async with asyncio.timeout(120):
        while await depth(vhost, queue) != count:  # noqa: ASYNC110 -- the broker tells of no event
            await asyncio.sleep(0.05)


async def taken(vhost: Vhost, queue: str, count: int) -> list[postbox.Post]:
    """Exactly so many are in a queue, and nothing waits for its turn behind them."""
    found = await asyncio.to_thread(postbox.drain, vhost.url, queue, expect=count)
    assert len(found) == count
    return found


async def nothing_left(vhost: Vhost, *but: str) -> None:
    """After the consumer has ended: every queue of the vhost but these is empty."""
    for found in await asyncio.to_thread(vhost.list, "queues"):
        if found["name"] not in but and not found["exclusive"]:  # of a service that was just killed
            assert await depth(vhost, found["name"]) == 0, found["name"]


def assert_intact(letter: postbox.Post, body: bytes) -> None:
    assert letter.body == body
    assert letter.properties.content_type == "application/json"
    assert letter.properties.message_id == "m-1"
    assert letter.properties.delivery_mode == 2
    assert HEADERS.items() <= letter.headers.items()


def assert_told(letter: postbox.Post, *, cause: str, attempt: int, error: str, said: str) -> None:
    """Why it failed is on the letter itself."""
    headers: dict[str, Any] = letter.headers
    assert headers[names.CAUSE] == cause
    assert said in headers[names.WHY]
    assert headers[names.ATTEMPT] == attempt
    assert headers[names.ORIGIN_QUEUE] == "orders"
    assert headers[names.ERROR_TYPE] == error
    assert said in headers[names.ERROR_MESSAGE]
    assert headers[names.ERROR_STACK]
    assert headers[names.ERROR_HOST]
    assert (headers[names.ERROR_SERVICE], headers[names.ERROR_RELEASE]) == ("shop", "1.2.3")
    assert 0 < headers[names.ERROR_FIRST_AT] <= headers[names.ERROR_AT]
    assert headers[names.ID]


def assert_rejected(letter: postbox.Post, times: int = 1) -> None:
    """In the layout external the broker alone tells of it."""
    death = letter.headers[names.X_DEATH][0]
    assert (death["queue"], death["reason"], death["count"]) == ("orders", "rejected", times)


# -- lines that are cut ------------------------------------------------------------------------------------
class CutBefore(Plug):
    """Cuts the line once, when it is about to carry this method: nothing of it reaches the broker.

    `holding_s`: what it carries is kept back for so long before that, while other lines work on.
    """

    def __init__(self, address: Address, method: bytes, *, holding_s: float = 0.0) -> None:
        super().__init__(address)
        self._method: bytes | None = method
        self._holding_s = holding_s

    async def _pump(self, direction: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        if direction == "heard":
            await super()._pump(direction, source, sink)
            return
        try:
            while data := await source.read(65536):
                if self._method is not None and self._method in data:
                    self._method = None
                    await asyncio.sleep(self._holding_s)
                    self.cut()
                    return
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        self._lines.discard(sink)
        sink.close()


PUBLISH = b"\x00\x3c\x00\x28"
ACK = b"\x00\x3c\x00\x50"
REJECT = b"\x00\x3c\x00\x5a"


def through(vhost: Vhost, plug: Plug) -> str:
    """The vhost's URL by way of the plug."""
    target = parse_addresses(vhost.url)[0]
    return vhost.url.replace(f"{target.host}:{target.port}", f"127.0.0.1:{plug.address.port}")
