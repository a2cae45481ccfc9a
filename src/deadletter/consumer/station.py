"""A station: one queue and its handler, on one link.

Messages come to an intake (a channel with one consumer), workers take them one by one or in batches, and the
settler carries out what their end means. A message that is suspected of killing its consumer is handled
alone: nothing more is taken, what is in hand is brought to its end, and then it is its turn.

A station ends when it is told to: it takes no more, gives back what nobody has begun, and lets the handlers
end what they have begun.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, assert_never

from deadletter.amqp.channel import Delivery
from deadletter.broker.intake import Intake, Window
from deadletter.broker.session import Link
from deadletter.consumer.batching import BatchHandler
from deadletter.consumer.details import Teller
from deadletter.consumer.events import Audience
from deadletter.consumer.handling import DONE, Aside, Handler
from deadletter.consumer.message import Message
from deadletter.consumer.paths import Past, Paths, Way
from deadletter.consumer.settling import Held, Settler
from deadletter.consumer.suspicion import Alone, Anew, Deadly, Fine, suspicion
from deadletter.core.envelope import Address
from deadletter.core.guards.budget import Budget
from deadletter.core.letter import Letter
from deadletter.errors import DeadletterError, MessageError, MoveFailed

POLL_S: Final = 0.01
DIED_OF_IT: Final = "killed-its-consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one queue is consumed."""

    queue: str
    prefetch: int
    concurrency: int
    deliveries_max: int
    """A message whose consumer died this often is put aside."""
    batch: int = 1
    """At most so many messages in one call."""
    wait_s: float = 0.0
    """How long a batch waits for more."""


class Station:
    """On one link; made anew for the next."""

    def __init__(
        self,
        plan: Plan,
        handler: Handler | BatchHandler,
        paths: Paths,
        *,
        teller: Teller,
        emit: Audience,
        mend: Callable[[str], Awaitable[None]],
        budget: Budget | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._handler = handler
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._settler = Settler(
            paths,
            handler.rules.schedule,
            teller=teller,
            emit=emit,
            mend=mend,
            on_lost=self._fail,
            budget=budget,
            dice=dice,
        )
        self._inbox: deque[Held] = deque()
        self._suspects: deque[Held] = deque()
        self._alone: asyncio.Task[None] | None = None
        """Sees to the first suspect."""
        self._late: list[int] = []
        """Tags of what came when no more was wanted."""
        self._idle: deque[asyncio.Future[None]] = deque()
        self._intake: Intake | None = None
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self._closing = False
        self._busy = 0

    # -- life --------------------------------------------------------------------------------------------
    async def on(
        self, link: Link, halt: asyncio.Event, stop: asyncio.Event | None = None, *, grace_s: float
    ) -> None:
        """Until `halt`, and then until what is in hand is settled; once `stop` is set too, for `grace_s`.

        Raises what ended it.
        """
        workers: list[asyncio.Task[None]] = []
        try:
            await self._settler.open(link)
            window = Window(self._plan.prefetch, None)
            consuming = await link.connection("consume")
            self._intake = await Intake.open(consuming, shape=window, on_lost=self._fail)
            # What waits behind a retry goes in one word with it once that is confirmed, within milliseconds;
            # acks one by one cost the broker more than all the rest.
            self._intake.receipts.patience = max(1, self._plan.prefetch * 3 // 4)
            self._settler.intake = self._intake
            work = self._work_one_by_one if isinstance(self._handler, Handler) else self._work_in_batches
            slots = min(self._plan.concurrency, self._plan.prefetch)
            workers = [self._loop.create_task(self._working(work)) for _ in range(slots)]
            await self._intake.start(self._plan.queue, self._on_delivery, budget=None)
            await self._until(halt)
            await self._drain(stop or halt, grace_s)
        finally:
            self._closing = True
            if self._alone is not None:
                workers.append(self._alone)
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._settler.close()
        if self._error is not None:
            raise self._error

    async def _until(self, halt: asyncio.Event) -> None:
        """Until it is to end. Meanwhile suspects have their turn, one after the other."""
        halted = asyncio.ensure_future(halt.wait())
        try:
            while not halt.is_set() and self._error is None:
                if self._alone is not None and self._alone.done():
                    self._alone = None
                if self._alone is None and self._suspects:
                    self._alone = self._loop.create_task(self._working(self._handle_alone))
                waking = asyncio.ensure_future(self._wake.wait())
                waited = {halted, waking} if self._alone is None else {halted, waking, self._alone}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
        finally:
            halted.cancel()
        if self._error is not None:
            raise self._error

    async def _handle_alone(self) -> None:
        """The first of the suspects, with nothing else in hand; the others go back into their queue."""
        assert self._intake is not None
        await self._intake.retire()
        await self._quiet(lambda: bool(self._inbox or self._busy or self._settler.flying))
        while len(self._suspects) > 1:
            other = self._suspects.pop()
            self._settler.anew(other, other.past.deliveries)
        await self._quiet(lambda: self._settler.flying)
        # From here on it counts: until now it could be put back as it was.
        await self._handle([self._suspects.popleft()])
        await self._quiet(lambda: self._settler.flying)
        if not self._closing:
            await self._intake.start(self._plan.queue, self._on_delivery, budget=None)

    async def _drain(self, stop: asyncio.Event, grace_s: float) -> None:
        """Take no more; what handlers have begun they may end."""
        assert self._intake is not None
        self._closing = True
        if self._alone is not None and self._suspects:  # its turn has not come
            self._alone.cancel()
            await asyncio.gather(self._alone, return_exceptions=True)
        await self._intake.retire()
        self._settler.give_back([*(held.delivery.tag for held in self._inbox), *self._late])
        self._inbox.clear()
        while self._suspects:  # given back they would look as if they had died alone
            other = self._suspects.popleft()
            self._settler.anew(other, other.past.deliveries)
        self._settler.hurry()
        until: float | None = None
        while (self._busy or self._settler.busy) and self._error is None:
            if until is None and stop.is_set():
                until = self._loop.time() + grace_s
            if until is not None and self._loop.time() >= until:
                return
            self._settler.settle(at_once=True)
            await asyncio.sleep(POLL_S)

    async def _quiet(self, busy: Callable[[], bool]) -> None:
        while busy() and self._error is None:
            self._settler.settle(at_once=True)
            await asyncio.sleep(POLL_S)
        if self._error is not None:
            raise self._error

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._inbox.clear()  # nothing can be settled any more, so nothing is begun
        self._wake.set()

    # -- messages ----------------------------------------------------------------------------------------
    def _on_delivery(self, intake: Intake, delivery: Delivery) -> None:
        intake.receipts.take(delivery.tag)
        if self._closing or self._error is not None:
            self._late.append(delivery.tag)
            return
        letter = Letter(
            source=self._plan.queue,
            message=delivery.message,
            came_by=Address(delivery.exchange, delivery.routing_key),
            redelivered=delivery.redelivered,
            circling=self._paths.circling,
        )
        try:
            past = self._paths.past(letter)
        except MessageError as error:
            self._settler.wrap(Held(delivery, letter, Past.unread()), f"it cannot be read: {error}")
            return
        held = Held(delivery, letter, past)
        if (past.came_back or past.deliveries) and not self._is_fine(held):
            return
        self._inbox.append(held)
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():  # else it was for a batch that waits no more
                waiting.set_result(None)
                break

    def _is_fine(self, held: Held) -> bool:
        """Whether it is handled as any other; what becomes of those that are not is seen to here."""
        if self._paths.way is Way.NATIVE:
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
                self._settler.conclude(held, Aside(error=error, why=str(error), cause=DIED_OF_IT))
            case _:
                assert_never(found)
        return False

    # -- workers -----------------------------------------------------------------------------------------
    async def _working(self, work: Callable[[], Awaitable[None]]) -> None:
        """A worker must not die unseen: its slot would be gone, and its message in hand for ever."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- told by whoever runs the station
            self._fail(error if isinstance(error, DeadletterError) else _broken(error))

    async def _work_one_by_one(self) -> None:
        inbox, settler, loop = self._inbox, self._settler, self._loop
        handler = self._handler
        assert isinstance(handler, Handler)
        while True:
            while not inbox or self._closing:
                await self._more()
            held = inbox.popleft()
            message = Message(held.letter, held.past.attempt)
            self._busy += 1
            begun = loop.time()
            try:
                if held.past.deliveries:
                    await self._originals_gone()
                outcome = await handler(message)
                if self._error is None:
                    settler.conclude(held, outcome, loop.time() - begun)
            except asyncio.CancelledError:
                self._keep_word([held], [message])
                raise
            finally:
                self._busy -= 1

    async def _work_in_batches(self) -> None:
        inbox = self._inbox
        while True:
            while not inbox or self._closing:
                await self._more()
            until = self._loop.time() + self._plan.wait_s
            while len(inbox) < self._plan.batch and (left_s := until - self._loop.time()) > 0:
                # What waits for company is in the inbox, not begun: at a halt it is given back.
                await self._more(left_s)
            if inbox and not self._closing:
                await self._handle([inbox.popleft() for _ in range(min(len(inbox), self._plan.batch))])

    async def _more(self, wait_s: float | None = None) -> None:
        """Until another message comes."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiting)
        if wait_s is None:
            await waiting
            return
        await asyncio.wait({waiting}, timeout=wait_s)
        waiting.cancel()

    async def _handle(self, batch: list[Held]) -> None:
        """These, in one call."""
        messages = [Message(held.letter, held.past.attempt) for held in batch]
        self._busy += 1
        begun = self._loop.time()
        try:
            if any(held.past.deliveries for held in batch):
                await self._originals_gone()
            if isinstance(self._handler, Handler):
                outcomes = [await self._handler(messages[0])]
            else:
                outcomes = await self._handler(messages)
            seconds = self._loop.time() - begun
            for held, outcome in zip(batch, outcomes, strict=True):
                if self._error is None:
                    self._settler.conclude(held, outcome, seconds)
        except asyncio.CancelledError:
            self._keep_word(batch, messages)
            raise
        finally:
            self._busy -= 1

    async def _originals_gone(self) -> None:
        """What was put back with a count comes again before its original is acked. A handler that ends the
        process then would leave both, and with each death another, each with a count of its own: so the acks
        must be on the wire first."""
        await self._quiet(lambda: self._settler.flying)
        self._settler.settle(at_once=True)
        await asyncio.sleep(POLL_S)

    def _keep_word(self, batch: list[Held], messages: list[Message]) -> None:
        """A handler that is cancelled may have said before that its message is done: then it is."""
        for held, message in zip(batch, messages, strict=True):
            if message.close() is True and self._error is None:
                self._settler.conclude(held, DONE)


def _broken(error: Exception) -> MoveFailed:
    failed = MoveFailed(
        f"a message could not be settled, it is back in its queue: {type(error).__name__}: {error}"
    )
    failed.__cause__ = error
    return failed
