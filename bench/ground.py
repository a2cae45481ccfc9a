"""The ground a race is run on: a source full of dead letters, and an empty target.

Every letter has died once: it is published to a queue that lets messages live for no time at all and
dead-letters them into the source. So each carries a real `x-death` family as the broker wrote it, besides
ordinary headers and properties.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Literal

from bench.errors import BenchError
from bench.management import Vhost
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter import names
from deadletter.core.letter.message import RawMessage, View, encode, view
from deadletter.errors import ClosedByBroker

QueueType = Literal["classic", "quorum"]

SOURCE: Final = "bench.source"
TARGET: Final = "bench.target"
ENTRY: Final = "bench.entry"
SETTLE_S: Final = 1.0
"""Between filling and moving: the broker finishes writing what it has confirmed."""
ENTRY_TTL_MS: Final = 1
"""Not 0: RabbitMQ 4.3 then hands on each letter by itself, and 50,000 take 20 s instead of two."""
STALLED_S: Final = 60.0
COUNTED_S: Final = 10.0
_POLL_S: Final = 0.1
_INTERNAL_ERROR: Final = 541
_CLEAR_TRIES: Final = 5
_CLEAR_PAUSE_S: Final = 2.0

_PROPERTIES: Final = encode(
    View(
        delivery_mode=2,
        content_type="application/json",
        message_id="order-000001",
        app_id="bench",
        headers={"x-retry-count": 1, "exception": "ValueError: boom", "tenant": "acme"},
    )
)


async def clear(url: str, *queues: str) -> None:
    """Delete queues, on a connection of its own and more than once.

    A quorum queue of 3.10.8 that was filled and emptied a moment ago may crash by itself while it reads its
    log (`ets_miss`, in about one of a hundred races); it is back in a second with all its letters, and who
    deletes it in between loses the connection with 541. That is no race's fault, and not worth half an hour
    of them.
    """
    for left in reversed(range(_CLEAR_TRIES)):
        connection = await connect(parse_addresses(url)[0], name="bench: clear")
        try:
            channel = await connection.channel()
            for queue in queues:
                await channel.delete_queue(queue)
        except ClosedByBroker as error:
            if error.code != _INTERNAL_ERROR or not left:
                raise
        else:
            return
        finally:
            await connection.close()
        await asyncio.sleep(_CLEAR_PAUSE_S)


class Ground:
    """Source and target in one vhost. `lay` it anew for each race. `site`: where the log of quorum queues
    begins anew with each; None where that makes no difference."""

    def __init__(self, vhost: Vhost, channel: Channel, site: Site | None) -> None:
        self.vhost = vhost
        self._channel = channel
        self._site = site

    @classmethod
    @asynccontextmanager
    async def open(cls, vhost: Vhost, site: Site | None = None) -> AsyncIterator[Ground]:
        connection = await connect(parse_addresses(vhost.url)[0], name="bench: ground")
        try:
            yield cls(vhost, await connection.channel(), site)
        finally:
            await connection.close()

    async def lay(
        self,
        queue_type: QueueType,
        count: int,
        *,
        body_bytes: int,
        letters: Iterable[RawMessage] | None = None,
    ) -> None:
        """New queues, `count` dead letters in the source, nothing in the target, and a rest. `letters`: these
        and not small ones that are all alike."""
        await clear(self.vhost.url, ENTRY, SOURCE, TARGET)
        if self._site is not None:
            await asyncio.to_thread(self._site.begin_log)
        for queue in (SOURCE, TARGET):
            await self._channel.declare_queue(queue, arguments={"x-queue-type": queue_type})
        into_source = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": SOURCE}
        await self._channel.declare_queue(ENTRY, arguments={"x-message-ttl": ENTRY_TTL_MS, **into_source})
        publishing = await self._channel.connection.channel()
        await publishing.select_confirms()
        alike = RawMessage(_PROPERTIES, b"x" * body_bytes)
        some = (alike for _ in range(count)) if letters is None else letters
        told = await publish_all(publishing, "", ENTRY, some)
        await publishing.close()
        if told.confirmed != count:
            raise BenchError(f"the broker took {told.confirmed:,} of {count:,} letters")
        await self._filled(count)
        await asyncio.sleep(SETTLE_S)

    async def _filled(self, count: int) -> None:
        depth, moved_at = -1, time.monotonic()
        while True:
            before, depth = depth, await self.depth(SOURCE)
            if depth == count:
                return
            if depth != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > STALLED_S:
                raise BenchError(f"the source was to have {count:,} letters and stays at {depth:,}")
            await asyncio.sleep(_POLL_S)

    async def depth(self, queue: str) -> int:
        """How many letters of a queue are ready."""
        return (await self._channel.declare_queue(queue, passive=True)).message_count

    async def count(self, expected: int, *, source: int = 0) -> tuple[int, int]:
        """Source and target once the mover is gone; what it had not acked is back in the source by then."""
        deadline = time.monotonic() + COUNTED_S
        while True:
            found = await self.depth(SOURCE), await self.depth(TARGET)
            if found == (source, expected) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_POLL_S)

    async def what_the_courier_missed(self) -> str | None:
        """Look at a letter the courier moved: our headers on it, the broker's `x-death` family off it."""
        delivery = await self._channel.get(TARGET)
        if delivery is None:
            return "the target is empty"
        headers = view(delivery.message.properties).headers or {}
        self._channel.nack(delivery.tag, requeue=True)
        lacking = {names.ID, names.SOURCE, names.MOVE, names.DEATHS} - headers.keys()
        left_on = ({names.X_DEATH} | names.DEATH_SUMMARY) & headers.keys()
        if lacking or left_on:
            return f"a moved letter lacks {sorted(lacking)} and still has {sorted(left_on)}"
        return None
