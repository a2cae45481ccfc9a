"""The intakes of one passage: they follow each other, one takes at a time, and all hold until the end.

If we should crash, every letter we hold pays with a delivery, and a queue with a delivery limit throws it
away when it has none left. So where there is a limit the first intake takes one letter and looks at its
count, the second one few, and where a count is as high as the limit letters are taken one at a time. Later
intakes take the full window.

While letters are left, an intake retires after a few hundred of them (`intake` says why), so hundreds may
follow each other. Its successor is made ready while it still takes, and begins before it ends: nothing waits
for the questions that a change costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.broker.queue_counts import counts_on
from deadletter.broker.session import to_its_end
from deadletter.core.letter import field_table, message, names
from deadletter.core.topology.look_cost import Deliveries
from deadletter.errors import MessageError, NotFound, WireError
from deadletter.move.intake import Intake, Window, window
from deadletter.move.verdict import Terms

UNHURRIED_FROM: Final = 500
"""From this window on letters are read in large pieces: so many are under way, a millisecond is nothing."""
MANY_TO_CLOSE: Final = 20
TAKEN_S: Final = 5.0
TAKEN_PAUSE_S: Final = 0.005
"""How long, at most, a queue is waited for to take what it was told last, and how often it is asked."""
ASK_PAUSE_S: Final = 0.05
"""The same while nobody waits for the answer."""
DELIVERY_COUNTS: Final = frozenset(name.encode() for name in names.DELIVERY_COUNTS)


class Intakes:
    """Made for one passage; `begin`, `turn` as often as you like, `retire`, `give_back`."""

    def __init__(
        self,
        taking: Connection,
        source: str,
        *,
        terms: Terms,
        deliveries: Deliveries,
        budget: int | None,
        one_by_one: int,
        seen: Callable[[], int],
        on_delivery: Callable[[Intake, Delivery], None],
        on_lost: Callable[[WireError], None],
    ) -> None:
        self._taking = taking
        self._source = source
        self._terms = terms
        self._deliveries = deliveries
        self._budget = budget
        self._one_by_one = one_by_one
        self._seen = seen
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._row: list[Intake] = []
        """The present one last; before it those with letters still in the air."""
        self._holding: list[Intake] = []
        """Retired, everything settled, letters held back until the end."""
        self._next: asyncio.Task[Intake] | None = None
        """The successor, not taking yet."""
        self._strangers = 0
        """How many consumers of others the queue has, as far as we know."""
        self._asked_at = 0.0

    @property
    def present(self) -> Intake:
        return self._row[-1]

    async def begin(self) -> None:
        """The first one."""
        if self._terms.prefetch >= UNHURRIED_FROM:
            self._taking.unhurried = True
        first = await self._prepare(None)
        try:
            self._strangers = await self._consumers(first.channel)  # before it is one of them
        except BaseException:
            first.channel.abandon()
            raise
        await self._start(first, self._left_over())

    async def turn(self, *, calm: bool) -> None:
        """Let another intake continue where the present one has done its part.

        Not unless it is `calm`: the broker's answers would wait behind its deliveries.
        """
        present = self.present
        if present.retired:
            pass  # the budget is spent; to replace it again would freeze its acks for good
        elif present.singly and present.alarmed and present.receipts.unsettled:
            pass  # one at a time: it is in hand, and nobody else's
        elif (present.done or self._runs_short(present)) and calm:
            self._taking.resume_reading()  # else the broker's answers would not be heard
            await to_its_end(self._replace(present))  # cut, letters would come to one that nobody knows of
        elif self._next is None and present.receipts.held > present.shape.held_max // 4:
            # not with the first that stays: whether others go is not known before some have come
            self._next = asyncio.create_task(self._prepare(present))
        for earlier in self._row[:-1]:
            if earlier.finished:
                if await self._is_through(earlier):
                    self._row.remove(earlier)
                    await to_its_end(earlier.close())
            elif earlier.receipts.seal():
                self._row.remove(earlier)
                self._holding.append(earlier)

    def reopen(self, intake: Intake) -> None:
        """A letter came to one that has retired: a quorum queue may send it long after it answered the
        cancel. Its ack must not be forgotten, or the letter would be in both places."""
        if intake in self._holding:
            self._holding.remove(intake)
            self._row.insert(0, intake)

    async def retire(self) -> None:
        """Take no more."""
        self._taking.resume_reading()  # else the broker's answer would not be heard
        if self._row and not self.present.retired and self.present.channel.error is None:
            try:
                await self._count_strangers()
            except NotFound:
                return  # the queue was deleted, and our consumers with it
        for intake in self._row:
            await intake.retire()

    async def _count_strangers(self) -> None:
        most = await self._consumers(self.present.channel) - self._ours
        least = most - sum(intake.finished for intake in self._row[:-1])
        if not least <= self._strangers <= most:
            self._strangers = least  # others came or went; too low a number only makes us wait

    @property
    def ripe(self) -> bool:
        """Whether letters are confirmed and not acked: they wait for others before them."""
        return any(intake.receipts.ripe for intake in self._row)

    def settle(self, *, at_once: bool) -> int:
        """Ack what may be acked now; returns how many letters that were."""
        return sum(intake.settle(at_once=at_once) for intake in self._row)

    async def give_back(self) -> int:
        """Give back what is not acked, all together; returns how many letters that were.

        One after the other, each channel would wait for an answer of its own. A channel that is closed gives
        back, too, and quorum queues before 4.3 are many times quicker in that (of 50,000 letters 0.05 s, not
        three, on 3.10.8). But what was acked on it may be forgotten then, and from 4.3 on it costs more.
        """
        await self._dismiss()
        every = [*self._holding, *self._row]
        held = sum(intake.receipts.unacked for intake in every)
        classic = not self._deliveries.counts
        if classic:
            every.reverse()
        elif not self._deliveries.known and len(every) > MANY_TO_CLOSE:
            first = every[0]
            first.return_all()
            if first.receipts.unacked and await self._is_classic():
                classic = True
                every.reverse()
                every.pop()
            else:
                every.pop(0)
            await first.close()
        by_nack = [intake for intake in every if intake.receipts.acked or self._deliveries.closing_costs_more]
        for intake in by_nack:
            intake.return_all()
        if by_nack and not classic:
            await self._taken(sum(bool(one.receipts.unacked) for one in every if one not in by_nack))
        for intake in every:  # all at once they would get in each other's way, and the letters out of order
            await intake.close()
        return held

    async def _taken(self, others: int) -> None:
        """Until the queue has taken the last acks and nacks; `others` of ours hold letters as before.

        A quorum queue applies them in its own time, and a channel that closes overtakes them: then letters
        come back that were acked, and a nack that was free costs a delivery. Nothing answers an ack. But a
        quorum queue goes on counting a consumer that was cancelled until the last of its letters is settled,
        and tells how many it counts. Where others come and go that number may never be reached, so this is
        not waited for without end.
        """
        if self._taking.closed.done():
            return
        channel = await self._taking.channel()
        loop = asyncio.get_running_loop()
        until = loop.time() + TAKEN_S
        try:
            while loop.time() < until:
                if await self._consumers(channel) <= self._strangers + others:
                    break
                await asyncio.sleep(TAKEN_PAUSE_S)
        except NotFound:
            return  # the queue was deleted, and everything with it
        await channel.close()

    async def _is_through(self, earlier: Intake) -> bool:
        """The same about one that has retired and has nothing in hand, while others go on."""
        now = asyncio.get_running_loop().time()
        if now >= earlier.quiet_at:
            return True
        if now - self._asked_at < ASK_PAUSE_S:
            return False
        self._asked_at = now
        return await self._consumers(self.present.channel) <= self._strangers + self._ours

    @property
    def _ours(self) -> int:
        """How many consumers of ours the queue counts for certain: those with letters in hand, and the one
        that takes."""
        return sum(
            bool(intake.receipts.unacked) or not intake.retired for intake in (*self._holding, *self._row)
        )

    async def _consumers(self, channel: Channel) -> int:
        return (await counts_on(channel, self._source)).consumers

    async def _dismiss(self) -> None:
        """The successor will not be needed."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})  # not the task itself: its end is not ours
            if not self._next.cancelled() and self._next.exception() is None:
                await self._next.result().close()

    async def _is_classic(self) -> bool:
        """Whether the source is a classic queue, told by a letter that just went back to it, where
        nobody else has told us.

        It matters for many: a classic queue walks from its head to where a letter belongs, so the last must
        go back first (of a million in the other order 221,000 were back after a minute); a quorum queue
        puts letters in the order in which they come back. AMQP does not tell a queue's type, but what a
        quorum queue delivers again carries a count.
        """
        channel = await self._taking.channel()
        back = await channel.get(self._source)
        if back is not None:
            channel.nack(back.tag, requeue=True)
        await channel.close()
        try:
            return back is not None and back.redelivered and not _counts(back)
        except MessageError:
            return False  # no message a broker should have taken; the other order is never wrong, only slow

    # -- one after the other -----------------------------------------------------------------------------
    def _left_over(self, promised: int = 0) -> int | None:
        return None if self._budget is None else self._budget - self._seen() - promised

    def _runs_short(self, present: Intake) -> bool:
        """Whether the present one may take no more, and letters promised to another did not come."""
        return present.spent and (left := self._left_over()) is not None and left > 0

    def _window(self, last: Intake | None) -> Window:
        singly = self._one_by_one - self._seen()
        return window(self._terms, self._deliveries, one_by_one=singly, last=last, holding=len(self._holding))

    async def _prepare(self, last: Intake | None) -> Intake:
        return await Intake.open(self._taking, shape=self._window(last), on_lost=self._on_lost)

    async def _successor(self, present: Intake) -> Intake:
        if self._next is not None:
            ready, self._next = await self._next, None
            if ready.shape == self._window(present):
                return ready
            await ready.close()  # what was seen since asks for another window
        return await self._prepare(present)

    async def _start(self, intake: Intake, budget: int | None) -> None:
        self._row.append(intake)
        await intake.start(self._source, self._on_delivery, budget=budget)

    async def _replace(self, present: Intake) -> None:
        successor = await self._successor(present)
        # Begun before the present one ends, so that letters keep coming; near the end of the budget after it,
        # or more would come than was asked for.
        budget = self._left_over(promised=present.freeze())
        if budget is None or budget > successor.prefetch:
            await self._start(successor, budget)
            await present.retire()
            return
        await present.retire()
        if (budget := self._left_over()) is None or budget > 0:
            await self._start(successor, budget)
        else:
            await successor.close()


def _counts(delivery: Delivery) -> list[field_table.Entry]:
    return field_table.find(message.header_table(delivery.message.properties), DELIVERY_COUNTS)
