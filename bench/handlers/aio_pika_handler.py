"""aio-pika as its documentation has it: a callback per message, and `ack` at its end."""

from __future__ import annotations

import asyncio
import json

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage

from bench.handlers.task import QUEUE, RETRY, Clock, Task


def consume(task: Task, clock: Clock) -> None:
    uvloop.run(_consume(task, clock))


async def _consume(task: Task, clock: Clock) -> None:
    connection = await aio_pika.connect(task.url)
    async with connection:
        taking = await connection.channel()
        giving = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await taking.set_qos(prefetch_count=task.prefetch)
        queue = await taking.get_queue(QUEUE, ensure=False)
        acked = 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def handle(message: AbstractIncomingMessage) -> None:
            nonlocal acked
            clock.tick()
            try:
                order = json.loads(message.body)
                if task.is_bad(order):
                    again = aio_pika.Message(
                        message.body,
                        headers={**message.headers, "attempt": 1},
                        content_type=message.content_type,
                        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    )
                    await giving.default_exchange.publish(again, RETRY, mandatory=True)
                await message.ack()
            except Exception as error:  # noqa: BLE001 -- the task has no other way to say so
                if not done.done():
                    done.set_exception(error)
                return
            acked += 1
            if acked == task.count and not done.done():
                done.set_result(None)

        await queue.consume(handle)
        await done
