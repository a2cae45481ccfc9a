"""FastStream with a RabbitBroker; its log of every message is off, which makes it faster."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from faststream import AckPolicy
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from bench.handlers.task import QUEUE, RETRY, Clock, Task

ENDING_S = 1.0
"""It acks after the handler: after the last call some are still on their way."""


def consume(task: Task, clock: Clock) -> None:
    uvloop.run(_consume(task, clock))


async def _consume(task: Task, clock: Clock) -> None:
    done = asyncio.Event()
    channel = Channel(prefetch_count=task.prefetch, publisher_confirms=True, on_return_raises=True)
    broker = RabbitBroker(task.url, default_channel=channel, logger=None)

    @broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(order: dict[str, Any]) -> None:
        if clock.tick():
            done.set()
        if task.is_bad(order):
            await broker.publish(order, RETRY, mandatory=True, persist=True, headers={"attempt": 1})

    await broker.start()
    await done.wait()
    await asyncio.sleep(ENDING_S)
    await broker.stop()
