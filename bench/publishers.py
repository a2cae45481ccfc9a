"""The publishers that are compared: each publishes so many orders, mandatory, persistent, confirmed.

`python -m bench.publishers ours URL COUNT TASKS BODY_BYTES`, in a process of its own, so that its CPU time is
its own. The asyncio ones have so many tasks that each wait for the confirm of one message before the next;
pika's blocking channel has one at a time, which is all it can. What it took and cost is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

import uvloop

QUEUE: Final = "orders"
PublishOne = Callable[[dict[str, Any]], Awaitable[object]]


def order(number: int, body_bytes: int) -> dict[str, Any]:
    lines = [{"sku": f"sku-{line:04}", "pieces": line + 1, "price": 19.9} for line in range(8)]
    return {"n": number, "customer": "c-000001", "lines": lines, "note": "x" * max(0, body_bytes - 420)}


class PublishClock:
    """From the first publish to the last confirm."""

    def __enter__(self) -> Self:
        self._begun, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        self.seconds: float = time.perf_counter() - self._begun
        self.cpu_s: float = time.process_time() - self._cpu

    def told(self) -> str:
        return json.dumps({"seconds": self.seconds, "cpu_s": self.cpu_s})


async def at_once(publish: PublishOne, count: int, tasks: int, body_bytes: int) -> PublishClock:
    """So many tasks, each with its share."""
    await publish(order(0, body_bytes))  # connected, and everything imported

    async def share(first: int) -> None:
        for number in range(first, count, tasks):
            await publish(order(number, body_bytes))

    with PublishClock() as clock:
        await asyncio.gather(*(share(first) for first in range(tasks)))
    return clock


async def ours(url: str, count: int, tasks: int, body_bytes: int) -> PublishClock:
    from deadletter import Consumer

    app = Consumer(url)
    async with app.publishing():
        return await at_once(lambda body: app.publish(body, key=QUEUE), count, tasks, body_bytes)


async def aio_pika(url: str, count: int, tasks: int, body_bytes: int) -> PublishClock:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)

        async def publish(body: dict[str, Any]) -> None:
            message = aio_pika.Message(
                json.dumps(body).encode(),
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await channel.default_exchange.publish(message, QUEUE, mandatory=True)

        return await at_once(publish, count, tasks, body_bytes)


async def faststream(url: str, count: int, tasks: int, body_bytes: int) -> PublishClock:
    from faststream.rabbit import Channel, RabbitBroker

    broker = RabbitBroker(
        url, default_channel=Channel(publisher_confirms=True, on_return_raises=True), logger=None
    )
    await broker.start()
    try:
        return await at_once(
            lambda body: broker.publish(body, QUEUE, mandatory=True, persist=True), count, tasks, body_bytes
        )
    finally:
        await broker.stop()


async def pika(url: str, count: int, _tasks: int, body_bytes: int) -> PublishClock:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
    channel.basic_publish("", QUEUE, json.dumps(order(0, body_bytes)).encode(), properties, mandatory=True)
    with PublishClock() as clock:
        for number in range(count):
            body = json.dumps(order(number, body_bytes)).encode()
            channel.basic_publish("", QUEUE, body, properties, mandatory=True)
    connection.close()
    return clock


PUBLISHERS: Final = {"ours": ours, "aio-pika": aio_pika, "faststream": faststream, "pika": pika}


def main() -> None:
    name, url, *numbers = sys.argv[1:]
    count, tasks, body_bytes = map(int, numbers)
    sys.stdout.write(uvloop.run(PUBLISHERS[name](url, count, tasks, body_bytes)).told() + "\n")


if __name__ == "__main__":
    main()
