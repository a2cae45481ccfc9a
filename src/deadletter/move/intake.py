"""One intake: a channel with one consumer on the source, and the account of what it was handed.

An intake never takes more than its budget: the broker sends at most *acked + prefetch* letters, so acks
beyond *budget - prefetch* are kept back until the consumer is cancelled. So a move of 100 letters takes
100 letters, not 100 and a window's worth that are then put back with a delivery spent on each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from deadletter.amqp.channel import Channel, Delivery, ignore
from deadletter.amqp.connection import Connection
from deadletter.broker.queue_counts import counts_on
from deadletter.core.topology.look_cost import Deliveries
from deadletter.errors import ConsumerCancelled, NotFound, WireError
from deadletter.move.receipts import Receipts
from deadletter.move.verdict import Terms

SCOUT: Final = 64
"""How many letters the first intake holds where no limit is known."""
FEW: Final = 16
"""How many the second one holds where there is a limit: the first takes one, and looks at its count."""
CALM_AFTER: Final = 20
"""So many letters are taken singly once one came that a crash of ours would destroy."""
CAUTION_COUNT: Final = 10
"""From this delivery count on few letters are held, where no limit is known."""
CAUTION_PREFETCH: Final = 20
HELD_MAX: Final = 100
"""An intake that holds this many letters back retires: a broker searches all unacked letters of a channel
for each single ack. Such an intake acks in transactions: see docs/design/the-safe-move.md."""
MORE_HELD: Final = 4
"""Where all letters of an intake stayed nothing was acked and nothing is searched: the next one may hold so
many times more. To change channels takes longer than to look at a hundred letters."""
ROOM: Final = 300
"""How many letters may come beside those that are held back."""
HELD_MAX_LATE: Final = 5000
"""The same once many intakes hold letters back, so that millions do not need more channels than there are."""
MANY: Final = 1000
MANY_CAREFUL: Final = 100
BUNCH: Final = 100
"""How many letters that are confirmed behind a held one are acked together, singly but in one go."""
PREFETCH_MAX: Final = 65535
LINGER_S: Final = 1.0
"""How long a channel stays open after acks, at most, in the middle of a passage, where nobody waits for it. A
quorum queue applies acks in its own time; those it has not applied when the channel closes are forgotten, and
the letters come back although they were acked. `intakes` knows a sign that they are applied."""
QUIET_S: Final = 0.05
LATE_S: Final = 2.0
"""How long letters are waited for that a queue has and does not send."""
BACK_S: Final = 2.0
BACK_PAUSE_S: Final = 0.05
HOLDING_S: Final = 5
"""With a rate, no more letters are held than go in this time: a broker takes a letter back that is held
for long (half an hour by default), and what is held nobody else can work on."""
HOLDING_LIMITED_S: Final = 0.1
"""The same where a crash of ours may destroy letters."""


class Window(NamedTuple):
    """How many letters an intake may take at once, and when another one continues."""

    prefetch: int
    turn_at: int | None
    """After so many letters; None: not for that reason."""
    held_max: int = HELD_MAX
    """When so many are held back,"""
    all_held_max: int = HELD_MAX
    """or, while every single one stays, so many."""
    together: bool = False
    """Whether acks reach the queue together, by transaction."""


def window(
    terms: Terms, deliveries: Deliveries, *, one_by_one: int, last: Intake | None, holding: int
) -> Window:
    """The window of the next intake after `last`. `one_by_one` letters are still to be taken singly;
    `holding` intakes have retired and hold letters back."""
    most = terms.prefetch
    if terms.rate_per_s is not None:
        hold_s = HOLDING_LIMITED_S if deliveries.strikes else HOLDING_S
        most = min(most, max(1, int(terms.rate_per_s * hold_s)))
    if one_by_one > 0:
        return Window(1, one_by_one)
    if deliveries.strikes and (careful := _careful(deliveries, most, last, holding)) is not None:
        return careful
    if last is None:
        return Window(min(SCOUT, most), min(SCOUT, most))
    if last.highest_count >= CAUTION_COUNT and not deliveries.known:
        return Window(min(CAUTION_PREFETCH, most), 10 * CAUTION_PREFETCH)
    if last.receipts.held:
        # Letters are being left: what is held must not use up the room for those that go.
        held_max = HELD_MAX if holding < MANY else HELD_MAX_LATE
        all_held_max = held_max
        if deliveries.strikes and terms.rate_per_s is not None:
            # else they would fill the room before their turn
            held_max = all_held_max = min(held_max, 1 + holding // 4)
        elif last.receipts.only_held:
            all_held_max = min(max(held_max, MORE_HELD * last.shape.all_held_max), HELD_MAX_LATE)
        room = min(ROOM, 2 * most) + all_held_max
        return Window(min(room, PREFETCH_MAX), None, held_max, all_held_max, together=True)
    return Window(most, None)


def _careful(deliveries: Deliveries, most: int, last: Intake | None, holding: int) -> Window | None:
    """Where a crash of ours may destroy letters: one first, then few; one at a time while it would.

    With very many intakes the few become more: there are not as many channels as letters.
    """
    few = FEW * (1 + holding // MANY_CAREFUL)
    if last is None:
        return Window(1, 1)
    if last.alarmed:
        return Window(1, CALM_AFTER)
    if deliveries.must_renew(last.highest_count):
        return Window(min(CAUTION_PREFETCH, most), 10 * CAUTION_PREFETCH)
    return Window(min(few, most), few) if last.prefetch == 1 < most else None


class Intake:
    """Made with `open`; takes letters until it is retired; holds what is not acked until it gives back."""

    __slots__ = (
        "_budget",
        "_consumer",
        "_most_acks",
        "_source",
        "alarmed",
        "channel",
        "highest_count",
        "prefetch",
        "quiet_at",
        "receipts",
        "shape",
    )

    def __init__(self, channel: Channel, shape: Window) -> None:
        self.channel: Channel = channel
        self.prefetch: int = shape.prefetch
        self.receipts: Receipts = Receipts(patience=max(1, min(BUNCH, shape.prefetch // 4)))
        self.highest_count: int = 0
        """The highest delivery count among the letters it saw."""
        self.alarmed: bool = False
        """Whether a letter came that a crash of ours would destroy."""
        self.shape: Window = shape
        self._source = ""
        self._budget: int | None = None
        self._most_acks: int | None = None
        self._consumer: str | None = None
        self.quiet_at: float = 0.0
        """When the acks of this channel are certainly through."""

    @classmethod
    async def open(
        cls, connection: Connection, *, shape: Window, on_lost: Callable[[WireError], None]
    ) -> Intake:
        """Make one ready; it takes nothing before `start`."""
        channel = await connection.channel()
        channel.on_closed = on_lost
        if shape.together:
            await channel.select_transactions()
        await channel.qos(shape.prefetch)
        return cls(channel, shape)

    async def start(
        self, source: str, on_delivery: Callable[[Intake, Delivery], None], *, budget: int | None
    ) -> None:
        """Take letters, at most `budget` of them."""
        if self.singly and self.shape.turn_at is not None:
            # Not one more: it would be a second in hand, beside the successor's.
            budget = self.shape.turn_at if budget is None else min(budget, self.shape.turn_at)
        self._source, self._budget = source, budget
        if budget is not None:
            if budget < self.prefetch:
                self.prefetch = max(1, budget)
                await self.channel.qos(self.prefetch)
            self._most_acks = max(0, budget - self.prefetch)
        lost = self.channel.on_closed
        self._consumer = await self.channel.consume(
            source,
            lambda delivery: on_delivery(self, delivery),
            lambda: lost(ConsumerCancelled(source)),
        )

    @property
    def done(self) -> bool:
        """Whether another intake should continue."""
        turn_at = self.shape.turn_at
        if turn_at is not None and self.receipts.seen >= turn_at:
            return True
        if self.alarmed and self.prefetch > 1:
            return True
        held = self.receipts.held
        if not held:
            return False  # asked with every letter
        most = self.shape.all_held_max if self.receipts.only_held else self.shape.held_max
        # At most half the window: the other half must be enough to keep letters coming.
        return held >= min(most, self.prefetch // 2)

    @property
    def singly(self) -> bool:
        """Whether letters are taken one at a time: the next one comes when this one is settled."""
        return self.shape.prefetch == 1

    @property
    def spent(self) -> bool:
        """Whether it took all it was allowed to."""
        return self._budget is not None and self.receipts.seen >= self._budget

    @property
    def retired(self) -> bool:
        return self._consumer is None

    def freeze(self) -> int:
        """Ack no more until it is retired; returns how many letters can still come."""
        self._most_acks = self.receipts.acked
        return self.prefetch - self.receipts.unacked

    async def retire(self) -> None:
        """Take no more. What was handed out stays with this intake."""
        if self._consumer is not None and self.channel.error is None:
            # No commit while this is asked: the queue answers a cancel, the channel a commit, and the
            # answers change places.
            self.freeze()
            await self._full_or_quiet()
            if self.channel.error is None:
                await self.channel.cancel(self._consumer)
            self._consumer = None
            self._most_acks = None

    async def _full_or_quiet(self) -> None:
        """Until what the last acks made room for is here. A quorum queue sends it late: a cancel may overtake
        it, and then the letters come after the answer or, held by a consumer that is no more, not before
        the channel closes (both seen on 3.10.8). Nobody would look at them in this passage."""
        seen, quiet_s = -1, 0.0
        while self.receipts.unacked < self.prefetch and quiet_s < LATE_S:
            if seen == self.receipts.seen and not await self._more_to_come():
                return
            quiet_s = quiet_s + QUIET_S if seen == self.receipts.seen else 0.0
            seen = self.receipts.seen
            await asyncio.sleep(QUIET_S)

    async def _more_to_come(self) -> bool:
        try:
            return (await counts_on(self.channel, self._source)).ready > 0
        except WireError:
            return False  # the channel says why to whoever made it

    def settle(self, *, at_once: bool) -> int:
        """Ack what may be acked now, `at_once` also singly; returns how many letters that were."""
        if self.channel.error is not None:
            return 0
        before = self.receipts.acked
        acks = self.receipts.due(most=self._most_acks, at_once=at_once or self.retired)
        for tag, multiple in acks:
            self.channel.ack(tag, multiple=multiple)
        if acks and self.shape.together:
            self.channel.commit()
        if acks:
            self.quiet_at = asyncio.get_running_loop().time() + LINGER_S
        return self.receipts.acked - before

    @property
    def finished(self) -> bool:
        """Whether nothing is in hand and no more will come."""
        return self.retired and not self.receipts.unacked

    def return_all(self) -> None:
        """Give back what is not acked, in one word, which costs less than hanging up."""
        self.channel.on_closed = ignore
        if self.channel.error is None and self.receipts.unacked:
            self.channel.nack(0, multiple=True, requeue=True)
            if self.shape.together:
                self.channel.commit()

    async def close(self) -> None:
        """Nothing is unacked any more, or the channel is lost anyway."""
        self.channel.on_closed = ignore
        await self.channel.close()


async def see_back(connection: Connection, source: str, held: int) -> None:
    """Wait until what was given back is there to be taken again: a queue needs a moment for it.

    Not for long: others may take from it, and then they are never there all at once.
    """
    channel = await connection.channel()
    try:
        until = asyncio.get_running_loop().time() + BACK_S
        while asyncio.get_running_loop().time() < until:
            if (await counts_on(channel, source)).ready >= held:
                break
            await asyncio.sleep(BACK_PAUSE_S)
    except NotFound:
        return  # the queue was deleted meanwhile: there is nothing to wait for
    await channel.close()
