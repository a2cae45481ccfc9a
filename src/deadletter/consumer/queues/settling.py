"""The way out: what becomes of messages, carried out.

Acked; or published with the failure's details, confirmed, and then acked; or rejected for the broker to do
the rest. Whatever happens in between, a message that was not settled is still in its queue. Acks of
neighbours travel as one. At the end acks go before anything is given back: see `hand`.

A message that a publish cannot place (the target is gone, or full) is not given up and not spun: the layout
is declared anew, and it is tried again after a pause, for as long as the consumer runs.

A retry over the queue's budget waits here, in hand and unacked, without a handler's slot, in the order in
which they failed. When all that may be held is waiting no more is taken: a queue that fails faster than its
budget is consumed no faster than that.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple, assert_never

from deadletter.amqp.channel import Delivery
from deadletter.broker.session import Link
from deadletter.consumer.events import Audience, Fate, Handled
from deadletter.consumer.handlers.failure_details import Teller, slimmer, type_of
from deadletter.consumer.handlers.handler_end import AlreadyDone, Done, Failed, HandlerEnd, decided
from deadletter.consumer.outcomes import Rules
from deadletter.consumer.queues.done_words import DoneWords
from deadletter.consumer.queues.hand import Hand
from deadletter.consumer.queues.layout_routes import LayoutRoutes, Past, Reject, RouteOut, rounded_ms
from deadletter.core.deciding.decision import Discard, Leave, Park, Retry
from deadletter.core.guards.budget import Budget
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.parking import Cause
from deadletter.errors import DeadletterError, WireError
from deadletter.move.flights import Landing as Landed
from deadletter.move.outlet import Cargo, Outlet
from deadletter.move.verdict import Send, Wrap

SETTLE_S: Final = 0.02
"""No message that is done waits longer for its ack because one before it is not."""
PLACE_S: Final = 0.5
PLACE_MAX_S: Final = 30.0


class InHand:
    """A message in hand."""

    __slots__ = ("delivery", "letter", "past", "tries")

    def __init__(self, delivery: Delivery, letter: Letter, past: Past) -> None:
        self.delivery: Delivery = delivery
        self.letter: Letter = letter
        self.past: Past = past
        self.tries: int = 0


class _Waiting(NamedTuple):
    """A retry that is over budget."""

    held: InHand
    route: RouteOut


class Settler:
    """For one queue on one link."""

    def __init__(
        self,
        paths: LayoutRoutes,
        rules: Rules,
        *,
        teller: Teller,
        emit: Audience,
        mend: Callable[[str], Awaitable[None]],
        on_lost: Callable[[Exception], None],
        budget: Budget | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._paths = paths
        self._rules = rules
        self._teller = teller
        self._emit = emit
        self._mend = mend
        """Declares anew what a publish did not find; hears its routing key."""
        self._on_lost = on_lost
        self._budget = budget
        self._dice = dice
        self._loop = asyncio.get_running_loop()
        self._air: dict[int, InHand] = {}
        """By delivery tag: published, and not answered yet."""
        self._waiting: deque[_Waiting] = deque()
        self._placing: set[asyncio.Task[None]] = set()
        self._settling = False
        """Whether acks are to be sent in this turn of the loop."""
        self._overdue: asyncio.TimerHandle | None = None
        """When those that wait behind another are sent all the same."""
        self._closing = False
        self.intake: Hand | None = None
        self._outlet: Outlet | None = None
        self._words: Final = DoneWords()

    async def open(self, link: Link) -> None:
        """Ready to publish. Whoever opens the intake gives it here."""
        self._words.renew(link)
        self._outlet = await Outlet.open(
            await link.connection("publish"),
            run=secrets.token_hex(8),
            source=self._paths.queue,
            user=link.address.user if link.address.mechanism == "PLAIN" else "",
            number_from=0,
            on_outcome=self._on_outcome,
            on_lost=self._on_lost,
        )

    @property
    def flying(self) -> bool:
        """Whether a publish is not answered yet."""
        return bool(self._air)

    @property
    def busy(self) -> bool:
        """Whether something is under way that will settle itself."""
        return bool(self._air or self._placing)

    def hurry(self) -> None:
        """The end is near: what is over budget goes now, what could not be placed is given back."""
        self._closing = True
        while self._waiting:
            self._place(*self._waiting.popleft())
        for task in self._placing:
            task.cancel()

    def give_back(self, tags: list[int]) -> None:
        """What is done is acked, and then what nobody has begun is for others to take, now."""
        assert self.intake is not None
        try:
            self.intake.give_back(tags)
        except WireError as error:
            self._on_lost(error)

    async def close(self) -> None:
        """Ack what is done, and give back whatever is not settled."""
        self._closing = True
        if self._overdue is not None:
            self._overdue.cancel()
        for task in self._placing:
            task.cancel()
        await asyncio.gather(*self._placing, return_exceptions=True)
        await self._words.close()
        for channel in (self.intake, self._outlet):
            try:
                if channel is not None:
                    await channel.close()
            except WireError as error:  # without the connection we hold nothing: the broker puts it back
                self._on_lost(error)

    # -- what becomes of it ------------------------------------------------------------------------------
    def conclude(self, held: InHand, end: HandlerEnd, seconds: float | None = None) -> None:
        """What the end of its handler means, carried out."""
        match end:
            case Done():
                self._ack(held)
                if held.past.replay:
                    self._words.done(held.letter.id, held.past.replay)
                if self._emit:
                    self._emit(
                        Handled(
                            queue=self._paths.queue,
                            fate=Fate.DONE,
                            attempt=held.past.attempt,
                            seconds=seconds,
                            letter=held.letter,
                        )
                    )
            case AlreadyDone():
                self._ack(held)
                if held.past.replay:
                    self._words.done(held.letter.id, held.past.replay)
                self._tell(Fate.SKIPPED, held, why="it was done before", cause=Cause.ALREADY_DONE)
            case Failed(error=error):
                self._failed(held, error, seconds)
            case _:
                assert_never(end)

    def _failed(self, held: InHand, error: BaseException, seconds: float | None) -> None:
        decision = decided(
            self._rules, error, attempt=held.past.attempt, dice=self._dice(), policy=self._paths.policy
        )
        match decision:
            case Retry():
                self._again(held, decision, error, seconds)
            case Park(cause=cause, why=why):
                self.park(held, error, cause=cause, why=why, seconds=seconds)
            case Discard(cause=cause, why=why):
                self._ack(held)
                self._tell(Fate.DISCARDED, held, why=why, cause=cause, error=error, seconds=seconds)
            case Leave():
                raise AssertionError("the rules of a queue leave nothing where it was")
            case _:
                assert_never(decision)

    def anew(self, held: InHand, deliveries: int) -> None:
        """Back into its queue, with what it cost so far."""
        self._place(held, self._paths.anew(held.past, deliveries))

    def _ack(self, held: InHand) -> None:
        assert self.intake is not None
        self.intake.receipts.confirm(held.delivery.tag)
        self._settle_soon()

    def _again(self, held: InHand, retry: Retry, error: BaseException, seconds: float | None) -> None:
        past, own = held.past, self._rules.schedule
        asked_ms = rounded_ms(retry.delay_ms) if retry.asked else retry.delay_ms
        route = self._paths.again(past, own, asked_ms, self._details(held, error))
        self._tell(
            Fate.RETRIED,
            held,
            why=retry.why,
            cause=retry.cause,
            error=error,
            delay_ms=self._paths.delay_ms(past, own, asked_ms),
            seconds=seconds,
        )
        budget, now = self._budget, self._loop.time()
        if budget is None or self._closing or (not self._waiting and budget.take(now)):
            self._place(held, route)
            return
        self._waiting.append(_Waiting(held, route))
        if len(self._waiting) == 1:
            self._loop.call_later(budget.wait_s(now), self._let_through)

    def _let_through(self) -> None:
        """Retries the budget has room for by now."""
        assert self._budget is not None
        while self._waiting and self._budget.take(self._loop.time()):
            self._place(*self._waiting.popleft())
        if self._waiting:
            self._loop.call_later(self._budget.wait_s(self._loop.time()), self._let_through)

    def park(
        self, held: InHand, error: BaseException, *, cause: Cause, why: str, seconds: float | None = None
    ) -> None:
        """Put it aside for a person."""
        details = self._details(held, error)
        self._tell(Fate.PARKED, held, why=why, cause=cause, error=error, seconds=seconds)
        self._place(held, self._paths.aside(held.past, details, cause=cause, why=why, at_ms=_now_ms()))

    def _details(self, held: InHand, error: BaseException) -> dict[str, Value]:
        return self._teller.headers(error, at_ms=_now_ms(), first_at_ms=held.past.first_failed_at_ms)

    def wrap(self, held: InHand, why: str) -> None:
        """It cannot travel as it is."""
        self._tell(Fate.PARKED, held, why=why, cause=Cause.UNREADABLE)
        self._send_wrapped(held, why)

    # -- publishing --------------------------------------------------------------------------------------
    def _place(self, held: InHand, route: RouteOut) -> None:
        try:
            match route:
                case Send():
                    self._publish(held, route)
                case Reject(requeue=requeue):
                    self._reject(held, requeue=requeue)
                case _:
                    assert_never(route)
        except WireError as error:  # the line is dead: it is still in its queue
            self._on_lost(error)

    def _reject(self, held: InHand, *, requeue: bool) -> None:
        assert self.intake is not None
        self.intake.reject(held.delivery.tag, requeue=requeue)

    def _publish(self, held: InHand, send: Send) -> None:
        assert self._outlet is not None
        assert self.intake is not None
        came_by = held.letter.came_by
        why = self._outlet.send(self.intake, held.delivery, send, came_by, keep=True)
        if why is not None:  # too large with all we wanted to say: say less, then wrap it whole
            slim = replace(send, headers=slimmer(dict(send.headers)))
            why = self._outlet.send(self.intake, held.delivery, slim, came_by, keep=True)
        if why is not None:
            self._send_wrapped(held, why)
            return
        self._air[held.delivery.tag] = held

    def _send_wrapped(self, held: InHand, why: str) -> None:
        assert self._outlet is not None
        assert self.intake is not None
        wrap = self._paths.wrapped(why=why, at_ms=_now_ms())
        match wrap:
            case Wrap():
                self._outlet.send_wrapped(self.intake, held.delivery, wrap, tries=held.tries)
                self._air[held.delivery.tag] = held
            case Reject(requeue=requeue):
                self._reject(held, requeue=requeue)
            case _:
                assert_never(wrap)

    def _on_outcome(self, landed: list[tuple[Cargo, Landed]]) -> None:
        for cargo, outcome in landed:
            held = self._air.pop(cargo.tag, None)
            if outcome is Landed.SAFE:
                cargo.intake.receipts.confirm(cargo.tag)
            elif held is not None and not self._closing:
                task = self._loop.create_task(self._once_more(held, cargo.verdict, outcome))
                self._placing.add(task)
                task.add_done_callback(self._placing.discard)
        self._settle_soon()

    async def _once_more(self, held: InHand, verdict: Send | Wrap, outcome: Landed) -> None:
        """The target is gone or full: mend the layout, wait, and try again."""
        held.tries += 1
        place = verdict.exchange or verdict.routing_key
        why = f"{place} did not take it: {outcome.value}"
        if outcome is Landed.UNROUTABLE and (trouble := await self._mended(verdict)):
            why = f"{why}, and it cannot be declared: {trouble}"
            verdict = self._paths.on_its_rung(held.past, self._rules.schedule, verdict)
        # A delay that is used for the first time is declared in passing; that is nothing to tell.
        if held.tries > 1 or outcome is Landed.REFUSED:
            self._tell(Fate.STUCK, held, why=why, cause=outcome.value)
            await asyncio.sleep(min(PLACE_S * 2 ** min(held.tries, 10), PLACE_MAX_S))
            if outcome is Landed.UNROUTABLE:
                await self._mended(verdict)  # it may be gone again
        match verdict:
            case Send():
                self._place(held, verdict)
            case Wrap():
                self._send_wrapped(held, verdict.why)
            case _:
                assert_never(verdict)

    async def _mended(self, verdict: Send | Wrap) -> str:
        """Why its place cannot be declared; empty: it is there."""
        try:
            await self._mend(verdict.routing_key)
        except DeadletterError as error:
            return str(error) or type(error).__name__
        return ""

    # -- acks --------------------------------------------------------------------------------------------
    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self.settle)

    def settle(self, *, at_once: bool = False) -> None:
        """Ack what may be acked."""
        self._settling = False
        intake = self.intake
        if intake is None or intake.channel.error is not None:
            return
        try:
            intake.settle(at_once=at_once)
        except WireError as error:
            self._on_lost(error)
            return
        if intake.receipts.ripe and self._overdue is None:
            self._overdue = self._loop.call_later(SETTLE_S, self._settle_all)

    def _settle_all(self) -> None:
        self._overdue = None
        self.settle(at_once=True)

    def _tell(
        self,
        fate: Fate,
        held: InHand,
        *,
        why: str,
        cause: str,
        error: BaseException | None = None,
        delay_ms: int | None = None,
        seconds: float | None = None,
    ) -> None:
        if self._emit or fate is not Fate.SKIPPED:
            self._emit(
                Handled(
                    queue=self._paths.queue,
                    fate=fate,
                    attempt=held.past.attempt,
                    delay_ms=delay_ms,
                    cause=cause,
                    why=why,
                    error="" if error is None else type_of(error),
                    seconds=seconds,
                    letter=held.letter,
                    raised=error,
                )
            )


def _now_ms() -> int:
    return int(time.time() * 1000)
