"""A channel with one consumer on the application's queue, and a way to leave the queue in good order.

A channel that closes forgets every ack that it has not passed on to a quorum queue, and those messages come
again although they were handled. What it has not passed on is what lies behind 32 commands that the queue has
not answered. So at the end there must never be so many:

1. No more acks. Deliveries come until the window is full, which shows that the queue has taken every ack, or
   until the queue has none left. A delivery that is on its way when its consumer is cancelled is given back
   by the channel itself, one command each, and so would be enough of them to hold up our acks.
2. Cancel. The queue answers when it has taken everything before it.
3. From here on in transactions, in which any number of acks is one command, and any number of nacks another:
   what was handled first, then what nobody has begun; and the acks of those that end later, at intervals that
   grow.
4. Close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from deadletter.amqp.channel import Channel, Delivery, ignore
from deadletter.amqp.connection import Connection
from deadletter.broker.queue_counts import counts_on
from deadletter.errors import ConsumerCancelled, WireError
from deadletter.move.intake import Intake, Window

FULL_S: Final = 2.0
"""How long deliveries are waited for that should come and do not: another consumer may have them."""
LOOK_S: Final = 0.01
PACE_S: Final = 0.1
"""So much longer waits each batch of acks after the consumer was cancelled: a queue that answers nothing for
half a minute has not been sent 32 of them."""
PACE_MAX_S: Final = 5.0
LINGER_S: Final = 0.3
"""How long a channel stays open where no word of the broker's shows that its acks are taken: deliveries did
not come to rest before the consumer was cancelled, or it had none when the end came."""


class Hand(Intake):
    """Made with `take`. `begin` as often as one likes, with a `retire` in between; `close` once."""

    __slots__ = (
        "_asking",
        "_at_rest",
        "_commits",
        "_frozen",
        "_next_at",
        "_parted",
        "_publishing",
        "_queue",
        "_tag",
        "_uncommitted",
    )

    def __init__(self, channel: Channel, queue: str, prefetch: int, publishing: Callable[[], bool]) -> None:
        super().__init__(channel, Window(prefetch, None))
        self._publishing = publishing
        # What waits behind a retry goes in one word with it once that is confirmed, within milliseconds; acks
        # one by one cost the broker more than all the rest.
        self.receipts.patience = max(1, prefetch * 3 // 4)
        self._queue = queue
        self._tag: str | None = None
        """Of the consumer."""
        self._asking = asyncio.Lock()
        """One question at a time: the queue answers some and the channel others, in any order."""
        self._frozen = False
        """Whether acks wait."""
        self._at_rest = True
        """Whether nothing was on its way when the consumer was cancelled."""
        self._parted = False
        """Whether it is the end: what is said now is said in transactions."""
        self._uncommitted = False
        self._commits = 0
        self._next_at = 0.0

    @classmethod
    async def take(
        cls,
        connection: Connection,
        queue: str,
        *,
        prefetch: int,
        publishing: Callable[[], bool],
        on_lost: Callable[[WireError], None],
    ) -> Hand:
        """Make one ready; it takes nothing before `begin`. `publishing`: whether something is under way."""
        channel = await connection.channel()
        channel.on_closed = on_lost
        await channel.qos(prefetch)
        return cls(channel, queue, prefetch, publishing)

    async def begin(self, on_delivery: Callable[[Intake, Delivery], None]) -> None:
        """Take messages; after `part` no more."""
        async with self._asking:
            if self._parted:
                return
            lost = self.channel.on_closed
            self._tag = await self.channel.consume(
                self._queue,
                lambda delivery: on_delivery(self, delivery),
                lambda: lost(ConsumerCancelled(self._queue)),
            )

    @property
    def retired(self) -> bool:
        return self._tag is None

    # -- no more -----------------------------------------------------------------------------------------
    async def retire(self) -> None:
        """Take no more. What was handed out stays here."""
        async with self._asking:
            await self._retire()

    async def _retire(self) -> None:
        if self._tag is None or self.channel.error is not None:
            return
        self._frozen = True
        try:
            self._at_rest = await self._full_or_empty()
            if self.channel.error is None:
                await self.channel.cancel(self._tag)
            self._tag = None
        finally:
            self._frozen = False

    async def _full_or_empty(self) -> bool:
        """Until no delivery is on its way, as the broker's own words show; False where they did not."""
        if not self.receipts.acked and not self.receipts.unacked:
            return True  # it had nothing, so nothing can be forgotten
        until = asyncio.get_running_loop().time() + FULL_S
        while self.receipts.unacked < self.prefetch and self.channel.error is None:
            # Every delivery that the queue made before it counted is here before its answer. What we publish
            # into it ourselves would come as well, and given back it would seem to have died alone.
            try:
                ready = (await counts_on(self.channel, self._queue)).ready
            except WireError:
                return False  # the channel says why to whoever made it
            if not ready and not self._publishing():
                return True
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def part(self) -> None:
        """It is the end: take no more, and know that everything acked so far is taken."""
        async with self._asking:
            if self._parted or self.channel.error is not None:
                return
            # While a message is handled alone there is no consumer, and so no answer that would show that the
            # acks before it are taken. Another one would be handed a message, and seem to have died of it.
            self._at_rest = self._tag is not None
            await self._retire()
            if self.channel.error is None:
                self._frozen, self._uncommitted = True, False
                await self.channel.select_transactions()
                self._frozen, self._parted = False, True

    # -- words ---------------------------------------------------------------------------------------------
    def settle(self, *, at_once: bool) -> int:
        """Ack what may be acked now, `at_once` also singly; returns how many messages that were."""
        if self.channel.error is not None or self._frozen:
            return 0
        if not self._parted:
            return self._ack(at_once=at_once)
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            return 0
        acked = self._ack(at_once=True)
        if self._commit():
            self._commits += 1
            self._next_at = now + min(PACE_S * self._commits, PACE_MAX_S)
        return acked

    def _ack(self, *, at_once: bool) -> int:
        before = self.receipts.acked
        for tag, multiple in self.receipts.due(at_once=at_once or self.retired):
            self.channel.ack(tag, multiple=multiple)
            self._uncommitted = True
        return self.receipts.acked - before

    def _commit(self) -> bool:
        if self._uncommitted:
            self.channel.commit()
            self._uncommitted = False
            return True
        return False

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Give one to the broker, which knows what to do with it."""
        self.channel.reject(tag, requeue=requeue)
        self.receipts.let_go(tag)
        self._uncommitted = True

    def give_back(self, tags: Iterable[int]) -> None:
        """Of what nobody has begun, and after `part`. A nack: a reject would count on RabbitMQ 4.3."""
        self._ack(at_once=True)
        self._commit()
        for tag in tags:
            self.channel.nack(tag, requeue=True)
            self.receipts.let_go(tag)
            self._uncommitted = True
        self._commit()

    @property
    def finished(self) -> bool:
        return not self.receipts.unacked

    async def close(self) -> None:
        """Ack what is done, give back what is not, and close."""
        if self.channel.error is None:
            await self.part()
        self.channel.on_closed = ignore
        if self.channel.error is None:
            self._ack(at_once=True)
            self._commit()
            if not self._at_rest:
                await asyncio.sleep(LINGER_S)
        if self.channel.error is None and self.receipts.unacked:
            self.channel.nack(0, multiple=True, requeue=True)
            self.channel.commit()
        await self.channel.close()
