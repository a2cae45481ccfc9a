"""aio-pika as its documentation has it: each delivery is a task that publishes, awaits its confirm, acks."""

from __future__ import annotations

import asyncio

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage

from bench.job import Job


def move(job: Job) -> None:
    uvloop.run(_move(job))


async def _move(job: Job) -> None:
    connection = await aio_pika.connect(job.url)
    async with connection:
        taking = await connection.channel()
        giving = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await taking.set_qos(prefetch_count=job.prefetch)
        source = await taking.get_queue(job.source, ensure=False)
        moved = 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def forward(message: AbstractIncomingMessage) -> None:
            nonlocal moved
            copy = aio_pika.Message(
                message.body,
                headers=message.headers,
                content_type=message.content_type,
                message_id=message.message_id,
                app_id=message.app_id,
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            try:
                await giving.default_exchange.publish(copy, job.target, mandatory=True)
                await message.ack()
            except Exception as error:  # noqa: BLE001 -- the task has no other way to say so
                if not done.done():
                    done.set_exception(error)
                return
            moved += 1
            if moved == job.count and not done.done():
                done.set_result(None)

        await source.consume(forward)
        await done
