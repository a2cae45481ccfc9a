"""One intake: a channel with one consumer on the source, and the account of what it was handed.

An intake never takes more than its budget: the broker sends at most *acked + prefetch* letters, so acks
beyond *budget - prefetch* are kept back until the consumer is cancelled. So a move of 100 letters takes
100 letters, not 100 and a window's worth that are then put back with a delivery spent on each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.broker.receipts import Receipts
from deadletter.broker.verdict import Terms
from deadletter.errors import ConsumerCancelled, NotFound, WireError

SCOUT: Final = 64
"""How many letters the first intake holds."""
CAUTION_COUNT: Final = 10
"""From this delivery count on few letters are held; RabbitMQ 4 destroys at 20 by default."""
CAUTION_PREFETCH: Final = 20
HELD_MAX: Final = 200
"""An intake that holds this many letters back retires: a broker searches all unacked letters of a channel
for each single ack."""
HELD_MAX_LATE: Final = 5000
"""The same once many intakes hold letters back, so that millions do not need more channels than there are."""
MANY: Final = 1000
BUNCH: Final = 100
"""How many letters that are confirmed behind a held one are acked together, singly but in one go."""
PREFETCH_MAX: Final = 65535
LINGER_S: Final = 0.3
"""How long a channel stays open after single acks. A quorum queue applies acks in batches of its own; those
it has not passed on when the channel closes are forgotten, and the letters come back although they were
acked (seen on 3.10: 40 of 2,571). Nothing in AMQP tells when they are through."""
BACK_LOOKS: Final = 40
BACK_PAUSE_S: Final = 0.05
HOLDING_S: Final = 5
"""With a rate, no more letters are held than go in this time: a broker takes a letter back that is held
for long (half an hour by default), and what is held nobody else can work on."""


class Window(NamedTuple):
    """How many letters an intake may take at once, and when another one continues."""

    prefetch: int
    turn_at: int | None
    """After so many letters; None: not for that reason."""
    held_max: int = HELD_MAX
    """When so many are held back."""


def window(terms: Terms, *, one_by_one: int, last: Intake | None, holding: int) -> Window:
    """The window of the next intake after `last`. `one_by_one` letters are still to be taken singly;
    `holding` intakes have retired and hold letters back."""
    most = terms.prefetch
    if terms.rate_per_s is not None:
        most = min(most, max(1, int(terms.rate_per_s * HOLDING_S)))
    if one_by_one > 0:
        return Window(1, one_by_one)
    if last is None:
        return Window(min(SCOUT, most), min(SCOUT, most))
    if last.highest_count >= CAUTION_COUNT:
        return Window(min(CAUTION_PREFETCH, most), 10 * CAUTION_PREFETCH)
    if last.receipts.held:
        # Letters are being left: what is held must not use up the room for those that go.
        held_max = HELD_MAX if holding < MANY else HELD_MAX_LATE
        return Window(min(2 * most + held_max, PREFETCH_MAX), None, held_max)
    return Window(most, None)


class Intake:
    """Made with `open`; takes letters until it is retired; holds what is not acked until it gives back."""

    __slots__ = (
        "_consumer",
        "_held_max",
        "_most_acks",
        "_quiet_at",
        "_turn_at",
        "channel",
        "highest_count",
        "prefetch",
        "receipts",
    )

    def __init__(
        self, channel: Channel, *, prefetch: int, turn_at: int | None, held_max: int, budget: int | None
    ) -> None:
        self.channel = channel
        self.prefetch = prefetch
        self.receipts = Receipts(patience=max(1, min(BUNCH, prefetch // 4)))
        self.highest_count = 0
        """The highest delivery count among the letters it saw."""
        self._turn_at = turn_at
        # At most half the window: the other half must be enough to keep letters coming.
        self._held_max = max(1, min(held_max, prefetch // 2))
        self._most_acks = None if budget is None else max(0, budget - prefetch)
        self._consumer: str | None = None
        self._quiet_at = 0.0
        """When the single acks of this channel will be through."""

    @classmethod
    async def open(
        cls,
        connection: Connection,
        source: str,
        *,
        shape: Window,
        budget: int | None,
        on_delivery: Callable[[Intake, Delivery], None],
        on_lost: Callable[[WireError], None],
    ) -> Intake:
        prefetch = shape.prefetch if budget is None else max(1, min(shape.prefetch, budget))
        channel = await connection.channel()
        intake = cls(
            channel, prefetch=prefetch, turn_at=shape.turn_at, held_max=shape.held_max, budget=budget
        )
        channel.on_closed = on_lost
        await channel.qos(prefetch)
        intake._consumer = await channel.consume(
            source,
            lambda delivery: on_delivery(intake, delivery),
            lambda: on_lost(ConsumerCancelled(source)),
        )
        return intake

    @property
    def done(self) -> bool:
        """Whether another intake should continue."""
        if self._turn_at is not None and self.receipts.seen >= self._turn_at:
            return True
        return self.receipts.held >= self._held_max

    @property
    def retired(self) -> bool:
        return self._consumer is None

    async def retire(self) -> None:
        """Take no more. What was handed out stays with this intake."""
        if self._consumer is not None and self.channel.error is None:
            consumer, self._consumer = self._consumer, None
            await self.channel.cancel(consumer)
            self._most_acks = None

    def settle(self, *, at_once: bool) -> int:
        """Ack what may be acked now, `at_once` also singly; returns how many letters that were."""
        if self.channel.error is not None:
            return 0
        before = self.receipts.acked
        acks = self.receipts.due(most=self._most_acks, at_once=at_once or self.retired)
        for tag, multiple in acks:
            self.channel.ack(tag, multiple=multiple)
        if len(acks) > 1:
            self._quiet_at = asyncio.get_running_loop().time() + LINGER_S
        return self.receipts.acked - before

    @property
    def finished(self) -> bool:
        """Whether it may be closed without a wait: nothing is held, and every ack is through."""
        return not self.receipts.unacked and asyncio.get_running_loop().time() >= self._quiet_at

    async def close(self) -> None:
        """Give back what is not acked, in one word, which costs less than hanging up; then close."""
        self.channel.on_closed = _ignore
        if self.channel.error is None:
            await asyncio.sleep(max(0.0, self._quiet_at - asyncio.get_running_loop().time()))
        if self.channel.error is None and self.receipts.unacked:
            self.channel.nack(0, multiple=True, requeue=True)
        await self.channel.close()


async def see_back(connection: Connection, source: str, held: int) -> None:
    """Wait until what was given back is there to be taken again: a queue needs a moment for it.

    Not for long: others may take from it, and then they are never there all at once.
    """
    channel = await connection.channel()
    try:
        for _ in range(BACK_LOOKS):
            if (await channel.declare_queue(source, passive=True)).message_count >= held:
                break
            await asyncio.sleep(BACK_PAUSE_S)
    except NotFound:
        return  # the queue was deleted meanwhile: there is nothing to wait for
    await channel.close()


def _ignore(_error: WireError) -> None:
    return
