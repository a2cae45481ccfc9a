"""Why a look saw nothing where something is: who holds a queue's letters back, or that it is no queue.

A single active consumer gets everything while it is there, an exclusive one lets nobody else in, and a stream
hands out nothing to those who do not say from where. In AMQP all three look like an empty queue, or nearly
so; the broker's own counts and refusals tell the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from deadletter.amqp.address import Address
from deadletter.broker.management import management
from deadletter.broker.queue_counts import QueueCounts, counts_of_existing
from deadletter.broker.session import Link, supervise
from deadletter.broker.streams import STREAM_WORDS, is_stream
from deadletter.errors import ManagementRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Letters that are there and cannot be looked at."""

    messages: int | None
    """None where nobody told."""
    why: str


async def withheld(addresses: Sequence[Address], api: str | None, queue: str) -> Withheld | None:
    """What a queue holds although nothing of it was handed out; None when it is simply empty."""

    async def count(link: Link) -> tuple[QueueCounts, bool, Address]:
        connection = await link.connection("consume")
        counted = await counts_of_existing(connection, queue)
        return counted, await is_stream(connection, queue), link.address

    (ready, consumers), stream, address = await supervise(addresses, count)
    if stream:
        told = await _told(address, api, queue)
        messages = told.get("messages")
        return Withheld(
            messages=messages if isinstance(messages, int) else ready or None,
            why=f"{STREAM_WORDS}; letters are looked at in queues",
        )
    if not ready:
        return None
    if consumers:
        return Withheld(
            messages=ready,
            why="another consumer gets them all, as its single active or its exclusive one; look again when "
            "that consumer has stopped",
        )
    return Withheld(
        messages=ready, why="the broker does not hand them out, and has no consumer that it names"
    )


async def _told(address: Address, api: str | None, queue: str) -> Mapping[str, Any]:
    try:
        async with management(address, api, need="only it counts what is in a stream") as asked:
            found = await asked.get_if_allowed("queues", below=quote(queue, safe=""))
    except ManagementRefused:
        return {}  # nobody has to have it
    return found if isinstance(found, Mapping) else {}
