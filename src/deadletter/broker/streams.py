"""Whether a queue is a stream, asked without the management API.

A stream looks like an empty queue to who does not say from where to read: RabbitMQ 3.10 and 4.3 count none of
its messages, and no version hands out those that are there. A consumer that says `x-stream-offset` is taken
by a stream alone; any other queue refuses the argument (406) before it hands out anything. With `next` the
stream hands out nothing that was there.
"""

from __future__ import annotations

from typing import Final

from deadletter.amqp.channel import ignore
from deadletter.amqp.connection import Connection
from deadletter.errors import ChannelClosed, MoveFailed

STREAM_WORDS: Final = "it is a stream, which is read from an offset and keeps what was read"


async def is_stream(connection: Connection, queue: str) -> bool:
    """On a channel for this question. Also False where we may not consume: then others say so."""
    try:
        async with await connection.channel() as channel:
            await channel.qos(1)
            await channel.consume(queue, ignore, ignore, arguments={"x-stream-offset": "next"})
    except ChannelClosed:
        return False
    return True


async def refuse_streams(connection: Connection, queue: str) -> None:
    """Nothing can be taken out of one: MoveFailed says so."""
    if await is_stream(connection, queue):
        raise MoveFailed(f"queue {queue}: nothing can be moved from it: {STREAM_WORDS}")
