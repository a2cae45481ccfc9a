"""A vigil over queues that would be deleted because nobody uses them.

`expires` by an operator's policy deletes a delay or the parked letters with all they hold. Declaring a quorum
queue again does not count as use, measured on every version; a consumer does. So somebody sits there for as
long as it lasts, and holds one letter of each queue; when the danger is over it is given back.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from deadletter.amqp.channel import Channel, Delivery
from deadletter.broker.session import Link
from deadletter.errors import ChannelClosed, WireError


class Vigil:
    """Consumers that keep queues of ours from expiring, on one link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._kept: dict[str, Channel] = {}

    async def over(self, queues: frozenset[str]) -> None:
        """Consume exactly these queues from now on."""
        for queue in list(self._kept):
            if queue not in queues or self._kept[queue].error is not None:
                await self._leave(queue)
        for queue in queues - self._kept.keys():
            # One channel each: a queue that is gone already closes the channel it was asked for on.
            channel = await self._link.channel("consume")
            with suppress(ChannelClosed):
                await channel.qos(1)
                await channel.consume(queue, _hold, partial(self._cancelled, queue))
                self._kept[queue] = channel

    def _cancelled(self, queue: str) -> None:
        """The broker ended it; the next look begins it anew."""
        self._kept.pop(queue, None)

    async def _leave(self, queue: str) -> None:
        channel = self._kept.pop(queue)
        with suppress(WireError):
            channel.nack(0, multiple=True, requeue=True)
            await channel.close()


def _hold(_delivery: Delivery) -> None:
    return
