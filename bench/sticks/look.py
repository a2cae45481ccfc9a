"""The least that looking can be: consume all of a queue on one plain channel, ack nothing, close it.

Everything comes at once (a quorum queue without a prefetch gives 2,000 and stops, so there is one for all),
nothing is read of it, and the broker puts all of it back. What a checker takes beyond that is its own. It
stands among the movers because it is asked in their way; it moves none.
"""

from __future__ import annotations

import asyncio
from typing import Final

import uvloop

from bench.job import Job
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.amqp.handshake import connect

_PREFETCH_MAX: Final = 65_535
"""Of one consumer."""


def move(job: Job) -> None:
    if job.count > _PREFETCH_MAX:
        raise ValueError(f"a bare look takes at most {_PREFETCH_MAX:,} letters, not {job.count:,}")
    uvloop.run(_look(job))


async def _look(job: Job) -> None:
    connection = await connect(parse_addresses(job.url)[0], name="bench: look")
    try:
        channel = await connection.channel()
        await channel.qos(job.count)
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
