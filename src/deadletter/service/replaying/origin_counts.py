"""How many letters wait in the queues that a replay sends to, and whether anybody consumes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deadletter.amqp.channel import Channel
from deadletter.broker.queue_counts import counts_on
from deadletter.broker.session import Link
from deadletter.errors import ChannelClosed, NotFound


class QueuesSeen(NamedTuple):
    """Of several queues the fullest one and the one with the fewest consumers; None: nobody can say."""

    depth: int | None
    consumers: int | None


NOTHING_SEEN = QueuesSeen(None, None)


class OriginCounts:
    """On one link at a time; one channel for all looks. A refusal closes it, and the next opens another."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._channel: Channel | None = None

    def renew(self, link: Link) -> None:
        self._link, self._channel = link, None

    async def look(self, queues: Iterable[str]) -> QueuesSeen:
        """Raises when the line is lost. A queue that is missing or closed to us tells nothing."""
        found: list[tuple[int, int]] = []
        for queue in queues:
            try:
                counts = await counts_on(await self._open(), queue)
            except NotFound:
                continue
            except ChannelClosed:
                return NOTHING_SEEN
            found.append((counts.ready, counts.consumers))
        if not found:
            return NOTHING_SEEN
        return QueuesSeen(max(ready for ready, _ in found), min(consumers for _, consumers in found))

    async def _open(self) -> Channel:
        assert self._link is not None
        if self._channel is None or self._channel.error is not None:
            self._channel = await self._link.channel()
        return self._channel
