"""One queue and its handler, on one link.

Messages come to a hand (a channel with one consumer), workers take them one by one or in batches, and the
settler carries out what their end means. A message that is suspected of killing its consumer is handled
alone: nothing more is taken, what is in hand is brought to its end, and then it is its turn.

It ends when it is told to: it takes no more, gives back what nobody has begun, and lets the handlers
end what they have begun.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

from deadletter.amqp.channel import Delivery
from deadletter.broker.session import Link
from deadletter.consumer.events import Audience
from deadletter.consumer.handlers.failure_details import Teller
from deadletter.consumer.handlers.routing import AnyHandler
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.consumer.queues.hand import Hand
from deadletter.consumer.queues.layout_routes import LayoutRoutes, Past
from deadletter.consumer.queues.settling import InHand, Settler
from deadletter.consumer.queues.suspicion import Alone, Anew, Deadly, Fine, suspicion
from deadletter.consumer.queues.workers import POLL_S, ConsumePlan, Workers
from deadletter.core.guards.budget import Budget
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.errors import MessageError
from deadletter.move.intake import Intake

__all__ = ["ConsumePlan", "QueueConsumer"]

_log: Final = logging.getLogger("deadletter.consumer")


class QueueConsumer:
    """One queue's consumer on one link; made anew for the next."""

    def __init__(
        self,
        plan: ConsumePlan,
        handler: AnyHandler,
        paths: LayoutRoutes,
        *,
        teller: Teller,
        emit: Audience,
        mend: Callable[[str], Awaitable[None]],
        leave: Callable[[SystemExit | KeyboardInterrupt], None],
        mail: AppMail | None = None,
        budget: Budget | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._settler = Settler(
            paths,
            handler.rules,
            teller=teller,
            emit=emit,
            mend=mend,
            on_lost=self._fail,
            budget=budget,
            dice=dice,
        )
        self._workers = Workers(plan, handler, self._settler, on_fail=self._wake.set, leave=leave, mail=mail)
        self._suspects: deque[InHand] = deque()
        self._alone: asyncio.Task[None] | None = None
        """Sees to the first suspect."""
        self._late: list[int] = []
        """Tags of what came when no more was wanted."""
        self._hand: Hand | None = None

    # -- life --------------------------------------------------------------------------------------------
    async def on(
        self,
        link: Link,
        halt: asyncio.Event,
        stop: asyncio.Event | None = None,
        *,
        grace_s: float,
        begun: Callable[[], object] | None = None,
    ) -> None:
        """Until `halt`, and then until what is in hand is settled; once `stop` is set too, for `grace_s`.

        `begun` is called when the broker gives it messages. Raises what ended it.
        """
        try:
            await self._settler.open(link)
            self._hand = await Hand.take(
                await link.connection("consume"),
                self._plan.queue,
                prefetch=self._plan.prefetch,
                publishing=lambda: self._settler.flying,
                on_lost=self._fail,
            )
            self._settler.intake = self._hand
            self._workers.start()
            await self._hand.begin(self._on_delivery)
            if begun is not None:
                begun()
            await self._until(halt)
            await self._drain(stop or halt, grace_s)
        finally:
            await self._workers.dismiss()
            await self._settler.close()
        if self._workers.error is not None:
            raise self._workers.error

    @property
    def hanging(self) -> bool:
        """Whether a handler goes on although its queue is left."""
        return self._workers.hanging

    def running(self) -> list[str]:
        """A line for each handler that has not ended."""
        return self._workers.running()

    async def let_go(self) -> None:
        """The process ends, whoever still runs: what is done is acked, the rest goes back."""
        self._workers.closing = True
        await self._settler.close()

    def _fail(self, error: Exception) -> None:
        self._workers.fail(error)

    async def _until(self, halt: asyncio.Event) -> None:
        """Until it is to end. Meanwhile suspects have their turn, one after the other."""
        workers = self._workers
        halted = asyncio.ensure_future(halt.wait())
        try:
            while not halt.is_set() and workers.error is None:
                if self._alone is not None and self._alone.done():
                    self._alone = None
                if self._alone is None and self._suspects:
                    self._alone = workers.task(self._handle_alone)
                waking = asyncio.ensure_future(self._wake.wait())
                waited = {halted, waking} if self._alone is None else {halted, waking, self._alone}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
        finally:
            halted.cancel()
        if workers.error is not None:
            raise workers.error

    async def _handle_alone(self) -> None:
        """The first of the suspects, with nothing else in hand; the others go back into their queue."""
        assert self._hand is not None
        workers, settler = self._workers, self._settler
        await self._hand.retire()
        await workers.quiet(lambda: bool(workers.inbox or workers.busy or settler.flying))
        while len(self._suspects) > 1:
            other = self._suspects.pop()
            settler.anew(other, other.past.deliveries)
        await workers.quiet(lambda: settler.flying)
        # From here on it counts: until now it could be put back as it was.
        await workers.handle([self._suspects.popleft()])
        await workers.quiet(lambda: settler.flying)
        if not workers.closing:
            await self._hand.begin(self._on_delivery)

    async def _drain(self, stop: asyncio.Event, grace_s: float) -> None:
        """Take no more; what handlers have begun they may end."""
        assert self._hand is not None
        workers, settler = self._workers, self._settler
        workers.closing = True
        if self._alone is not None and self._suspects:  # its turn has not come
            await workers.call_off(self._alone)
        await self._hand.part()
        settler.give_back([*(held.delivery.tag for held in workers.inbox), *self._late])
        workers.inbox.clear()
        while self._suspects:  # given back they would look as if they had died alone
            other = self._suspects.popleft()
            settler.anew(other, other.past.deliveries)
        settler.hurry()
        until: float | None = None
        while (workers.busy or settler.busy) and workers.error is None:
            if until is None and stop.is_set():
                until = self._loop.time() + grace_s
            if until is not None and self._loop.time() >= until:
                for line in workers.running():
                    _log.warning("%s; its grace of %g s is over, and its message goes back", line, grace_s)
                return
            settler.settle(at_once=True)
            await asyncio.sleep(POLL_S)

    # -- messages ----------------------------------------------------------------------------------------
    def _on_delivery(self, intake: Intake, delivery: Delivery) -> None:
        intake.receipts.take(delivery.tag)
        if self._workers.closing or self._workers.error is not None:
            self._late.append(delivery.tag)
            return
        letter = Letter(
            source=self._plan.queue,
            message=delivery.message,
            came_by=ExchangeKey(delivery.exchange, delivery.routing_key),
            redelivered=delivery.redelivered,
            circling=self._paths.circling,
        )
        try:
            past = self._paths.past(letter)
        except MessageError as error:
            self._settler.wrap(InHand(delivery, letter, Past.unread()), f"it cannot be read: {error}")
            return
        held = InHand(delivery, letter, past)
        if (past.came_back or past.deliveries) and not self._is_fine(held):
            return
        self._workers.put(held)

    def _is_fine(self, held: InHand) -> bool:
        """Whether it is handled as any other; what becomes of those that are not is seen to here."""
        if self._paths.layout is ConsumerLayout.NATIVE:
            return True  # there a delivery is a retry, and the broker ends them
        found = suspicion(
            redelivered=held.past.came_back,
            counted=held.past.counted,
            noted=held.past.deliveries,
            most=self._plan.deliveries_max,
        )
        match found:
            case Fine():
                return True
            case Alone():
                self._suspects.append(held)
                self._wake.set()
            case Anew(deliveries=deliveries):
                self._settler.anew(held, deliveries)
            case Deadly(deliveries=deliveries):
                error = RuntimeError(
                    f"delivered {deliveries} times, at last alone, and its consumer never ended it"
                )
                self._settler.park(held, error, cause=Cause.KILLED_ITS_CONSUMER, why=str(error))
            case _:
                assert_never(found)
        return False
