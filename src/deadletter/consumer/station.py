"""A station: one queue, its handler, and the safe way out for every message.

Messages come to an intake (a channel with one consumer), workers take them one by one, and what a handler's
end means is carried out: acked, or published with the failure's details, confirmed, and then acked, or
rejected for the broker to do the rest. Whatever happens in between, a message that was not settled is still
in its queue. Acks of neighbours travel as one.

A message that a publish cannot place (the target is gone, or full) is not given up and not spun: the layout
is declared anew, and it is tried again after a pause, for as long as the consumer runs.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from deadletter.amqp.channel import Delivery
from deadletter.broker.flights import Outcome as Landed
from deadletter.broker.intake import Intake, Window
from deadletter.broker.outlet import Cargo, Outlet
from deadletter.broker.session import Link
from deadletter.broker.verdict import Send, Wrap
from deadletter.consumer.details import Teller, slimmer
from deadletter.consumer.events import Event, Fate, Handled
from deadletter.consumer.handling import Again, Aside, Away, Done, Handler, Outcome
from deadletter.consumer.message import Message
from deadletter.consumer.paths import Past, Paths, Reject, Route, Way
from deadletter.core.envelope import Address
from deadletter.core.layouts.naming import PARKED
from deadletter.core.letter import Letter
from deadletter.core.table import Value
from deadletter.errors import MessageError, WireError

SETTLE_S: Final = 0.05
"""No message that is done waits longer for its ack because one before it is not."""
PLACE_S: Final = 0.5
PLACE_MAX_S: Final = 30.0
DIED_OF_IT: Final = "killed-its-consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one queue is consumed."""

    queue: str
    prefetch: int
    concurrency: int
    deliveries_max: int
    """A message whose consumer died this often is put aside."""


class _Held:
    """A message in hand."""

    __slots__ = ("delivery", "letter", "past", "tries")

    def __init__(self, delivery: Delivery, letter: Letter, past: Past) -> None:
        self.delivery = delivery
        self.letter = letter
        self.past = past
        self.tries = 0


class Station:
    """On one link; made anew for the next."""

    def __init__(
        self,
        plan: Plan,
        handler: Handler,
        paths: Paths,
        *,
        teller: Teller,
        emit: Callable[[Event], None],
        mend: Callable[[str], Awaitable[None]],
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._handler = handler
        self._paths = paths
        self._teller = teller
        self._emit = emit
        self._mend = mend
        """Declares anew what a publish did not find; hears its routing key."""
        self._dice = dice
        self._success = Handled(queue=plan.queue, fate=Fate.DONE)
        """One fact for all of them: nothing about them differs."""
        self._run_id = secrets.token_hex(8)
        self._inbox: deque[_Held] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._air: dict[int, _Held] = {}
        """By delivery tag: published, and not answered yet."""
        self._intake: Intake | None = None
        self._outlet: Outlet | None = None
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self._closing = False
        self._settling = False
        self._busy = 0
        self._placing: set[asyncio.Task[None]] = set()

    # -- life --------------------------------------------------------------------------------------------
    async def on(self, link: Link, stop: asyncio.Event, *, grace_s: float) -> None:
        """Until `stop`, and then until what is in hand is settled, for `grace_s`. Raises what ended it."""
        self._outlet = await Outlet.open(
            await link.connection("publish"),
            run=self._run_id,
            source=self._plan.queue,
            user=link.address.user if link.address.mechanism == "PLAIN" else "",
            number_from=0,
            on_outcome=self._on_outcome,
            on_lost=self._fail,
        )
        window = Window(self._plan.prefetch, None)
        self._intake = await Intake.open(await link.connection("consume"), shape=window, on_lost=self._fail)
        workers = [asyncio.create_task(self._work()) for _ in range(self._plan.concurrency)]
        try:
            await self._intake.start(self._plan.queue, self._on_delivery, budget=None)
            await self._until(stop)
            await self._drain(grace_s)
        finally:
            self._closing = True
            for task in [*workers, *self._placing]:
                task.cancel()
            await asyncio.gather(*workers, *self._placing, return_exceptions=True)
            await self._give_back()
        if self._error is not None:
            raise self._error

    async def _until(self, stop: asyncio.Event) -> None:
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set() and self._error is None:
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({stopped, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
        finally:
            stopped.cancel()
        if self._error is not None:
            raise self._error

    async def _drain(self, grace_s: float) -> None:
        """Take no more; what handlers have begun they may end."""
        assert self._intake is not None
        self._closing = True
        self._inbox.clear()  # not begun: it is given back
        await self._intake.retire()
        until = asyncio.get_running_loop().time() + grace_s
        while (self._busy or self._air or self._placing) and self._error is None:
            if asyncio.get_running_loop().time() >= until:
                return
            self._settle(at_once=True)
            await asyncio.sleep(0.01)
        self._settle(at_once=True)

    async def _give_back(self) -> None:
        try:
            if self._intake is not None:
                self._settle(at_once=True)
                await self._intake.close()
            if self._outlet is not None:
                await self._outlet.close()
        except WireError as error:  # without the connection we hold nothing: the broker puts it back
            self._error = self._error or error

    def _fail(self, error: Exception) -> None:
        if self._error is None and not (self._closing and self._intake is None):
            self._error = error
        self._wake.set()

    # -- messages ----------------------------------------------------------------------------------------
    def _on_delivery(self, intake: Intake, delivery: Delivery) -> None:
        intake.receipts.take(delivery.tag)
        if self._closing or self._error is not None:
            return  # unsettled: it is given back
        letter = Letter(
            source=self._plan.queue,
            message=delivery.message,
            came_by=Address(delivery.exchange, delivery.routing_key),
            redelivered=delivery.redelivered,
        )
        try:
            past = self._paths.past(letter)
        except MessageError as error:
            self._wrap(delivery, f"it cannot be read: {error}")
            return
        held = _Held(delivery, letter, past)
        if delivery.redelivered and self._suspicious(held):
            return
        self._inbox.append(held)
        if self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def _work(self) -> None:
        inbox = self._inbox
        while True:
            while not inbox:
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                await waiting
            held = inbox.popleft()
            self._busy += 1
            try:
                outcome = await self._handler(Message(held.letter, held.past.attempt))
                if self._error is None:
                    self._conclude(held, outcome)
            finally:
                self._busy -= 1

    def _suspicious(self, held: _Held) -> bool:
        """Whether its consumers die of it. A queue that does not count deliveries gets it anew, with one."""
        deliveries = held.past.deliveries
        if self._paths.way is Way.NATIVE:
            return False  # there a delivery is a retry, and the broker ends them
        if deliveries >= self._plan.deliveries_max:
            error = RuntimeError(
                f"delivered {deliveries} times, and its consumer never came to an end with it"
            )
            self._conclude(held, Aside(error=error, why=str(error), cause=DIED_OF_IT))
            return True
        if not held.letter.delivery_count:
            self._publish(held, self._paths.anew(held.past))
            return True
        return False

    # -- what becomes of them ----------------------------------------------------------------------------
    def _conclude(self, held: _Held, outcome: Outcome) -> None:
        assert self._intake is not None
        match outcome:
            case Done():
                self._intake.receipts.confirm(held.delivery.tag)
                self._settle_soon()
                self._emit(self._success)
            case Again(error=error, schedule=schedule):
                self._again(held, outcome, error, schedule.retries)
            case Aside(error=error, why=why, cause=cause):
                self._aside(held, error, why=why, cause=cause)
            case Away(why=why):
                self._intake.receipts.confirm(held.delivery.tag)
                self._settle_soon()
                self._tell(Fate.DISCARDED, held, why=why, cause="discard")
            case _:
                assert_never(outcome)

    def _again(self, held: _Held, outcome: Again, error: BaseException, retries: int) -> None:
        past = held.past
        if past.attempt >= retries:
            why = f"all {retries} retries are used up; the last failed with {type(error).__name__}: {error}"
            self._aside(held, error, why=why, cause="retries-exhausted")
            return
        delay_ms = outcome.delay_ms or outcome.schedule.delay_ms(past.attempt, self._dice()) or 1
        details = self._details(held, error)
        route = self._paths.again(past, outcome.schedule, delay_ms, details)
        self._tell(
            Fate.RETRIED,
            held,
            why=f"{type(error).__name__}: {error}",
            cause="retries-left",
            delay_ms=delay_ms,
        )
        self._place(held, route)

    def _aside(self, held: _Held, error: BaseException, *, why: str, cause: str) -> None:
        details = self._details(held, error)
        self._tell(Fate.PARKED, held, why=why, cause=cause)
        self._place(held, self._paths.aside(held.past, details, cause=cause, why=why))

    def _details(self, held: _Held, error: BaseException) -> dict[str, Value]:
        now_ms = int(time.time() * 1000)
        return self._teller.headers(error, at_ms=now_ms, first_at_ms=held.past.first_failed_at_ms)

    def _place(self, held: _Held, route: Route) -> None:
        assert self._intake is not None
        match route:
            case Send():
                self._publish(held, route)
            case Reject(requeue=requeue):
                self._intake.channel.reject(held.delivery.tag, requeue=requeue)
                self._intake.receipts.let_go(held.delivery.tag)
            case _:
                assert_never(route)

    def _publish(self, held: _Held, send: Send) -> None:
        assert self._outlet is not None
        assert self._intake is not None
        came_by = held.letter.came_by
        why = self._outlet.send(self._intake, held.delivery, send, came_by, keep=True)
        if why is not None:  # too large with all we wanted to say: say less, then nothing, then wrap it whole
            slim = replace(send, headers=slimmer(dict(send.headers)))
            why = self._outlet.send(self._intake, held.delivery, slim, came_by, keep=True)
        if why is not None:
            self._wrap(held.delivery, why)
            return
        self._air[held.delivery.tag] = held

    def _wrap(self, delivery: Delivery, why: str) -> None:
        assert self._outlet is not None
        assert self._intake is not None
        wrap = Wrap(routing_key=PARKED, cause="unreadable", why=why, at_ms=int(time.time() * 1000))
        self._outlet.send_wrapped(self._intake, delivery, wrap, tries=0)

    def _on_outcome(self, landed: list[tuple[Cargo, Landed]]) -> None:
        for cargo, outcome in landed:
            held = self._air.pop(cargo.tag, None)
            if outcome is Landed.SAFE:
                cargo.intake.receipts.confirm(cargo.tag)
            elif held is not None and isinstance(cargo.verdict, Send):
                task = asyncio.ensure_future(self._once_more(held, cargo.verdict, outcome))
                self._placing.add(task)
                task.add_done_callback(self._placing.discard)
            else:
                cargo.intake.receipts.hold(cargo.tag)  # a wrapped one: it stays until the next start
        self._settle_soon()

    async def _once_more(self, held: _Held, send: Send, outcome: Landed) -> None:
        """The target is gone or full: mend the layout, wait, and try again."""
        held.tries += 1
        place = send.exchange or send.routing_key
        self._tell(Fate.STUCK, held, why=f"{place} did not take it: {outcome.value}", cause=outcome.value)
        if outcome is Landed.UNROUTABLE:
            await self._mend(send.routing_key)
        if held.tries > 1 or outcome is Landed.REFUSED:
            await asyncio.sleep(min(PLACE_S * 2 ** min(held.tries, 10), PLACE_MAX_S))
        if self._error is None and not self._closing:
            self._publish(held, send)

    # -- acks --------------------------------------------------------------------------------------------
    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self, *, at_once: bool = False) -> None:
        self._settling = False
        intake = self._intake
        if intake is None or self._error is not None:
            return
        try:
            intake.settle(at_once=at_once)
        except WireError as error:
            self._fail(error)
            return
        if intake.receipts.ripe and not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_later(SETTLE_S, lambda: self._settle(at_once=True))

    def _tell(self, fate: Fate, held: _Held, *, why: str, cause: str, delay_ms: int | None = None) -> None:
        self._emit(
            Handled(
                queue=self._plan.queue,
                fate=fate,
                attempt=held.past.attempt,
                delay_ms=delay_ms,
                cause=cause,
                why=why,
                letter=held.letter,
            )
        )
