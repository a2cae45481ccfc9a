"""The least that looking can be: consume all of a queue on one plain channel, ack nothing, close it.

Everything comes at once, without a prefetch, nothing is read of it, and the broker puts all of it back. What
a checker takes beyond that is its own. It stands among the movers because it is asked in their way; it moves
none.
"""

from __future__ import annotations

import asyncio

import uvloop

from bench.job import Job
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.amqp.handshake import connect


def move(job: Job) -> None:
    uvloop.run(_look(job))


async def _look(job: Job) -> None:
    connection = await connect(parse_addresses(job.url)[0], name="bench: look")
    try:
        channel = await connection.channel()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seen = 0

        def on_delivery(_delivery: Delivery) -> None:
            nonlocal seen
            seen += 1
            if seen == job.count:
                ended.set_result(None)

        def on_cancel() -> None:
            ended.set_exception(
                RuntimeError(f"the broker ended the look after {seen} of {job.count} letters")
            )

        await channel.consume(job.source, on_delivery, on_cancel)
        await ended
        await channel.close()
    finally:
        await connection.close()
