"""Publishing messages of our own making: confirmed, with back-pressure, in a pipeline.

Not for letters on the move: those go by the courier, which knows their source. This is for what begins
with us, such as the letters of a demonstration, a benchmark or a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from deadletter.amqp.channel import Channel, ReturnedMessage
from deadletter.core.letter.message import RawMessage
from deadletter.errors import WireError

IN_FLIGHT: Final = 2000


class PublishOutcome(NamedTuple):
    confirmed: int
    refused: int
    """Nacked by the broker: a queue was full, or failed."""
    returned: tuple[ReturnedMessage, ...]


async def publish_all(
    channel: Channel,
    exchange: str,
    routing_key: str,
    messages: Iterable[RawMessage],
    *,
    mandatory: bool = True,
) -> PublishOutcome:
    """Publish every message and wait for the broker's word on each. `channel` must have confirms selected."""
    publishing = channel.publishing(exchange, routing_key, mandatory=mandatory)
    unconfirmed: set[int] = set()
    returned: list[ReturnedMessage] = []
    refused = 0
    changed = asyncio.Event()

    def on_confirm(tag: int, multiple: bool, ok: bool) -> None:
        nonlocal refused
        settled = {t for t in unconfirmed if t <= tag} if multiple else {tag} & unconfirmed
        unconfirmed.difference_update(settled)
        refused += 0 if ok else len(settled)
        changed.set()

    def on_closed(_error: WireError) -> None:
        changed.set()

    async def until(most: int) -> None:
        while len(unconfirmed) > most:
            if channel.error is not None:
                raise channel.error
            changed.clear()
            await changed.wait()

    channel.on_confirm, channel.on_return, channel.on_closed = on_confirm, returned.append, on_closed
    published = 0
    for message in messages:
        await channel.connection.ready()
        unconfirmed.add(channel.publish(publishing, message.properties, message.body))
        published += 1
        if published % 100 == 0:
            await asyncio.sleep(0)
        await until(IN_FLIGHT - 1)
    await until(0)
    if channel.error is not None:
        raise channel.error
    return PublishOutcome(published - refused - len(returned), refused, tuple(returned))
