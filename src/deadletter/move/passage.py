"""One passage: letters from one queue to wherever the decision says, on one pair of connections.

The life of a letter here: it is delivered to an *intake* (a channel with one consumer), the decision is
asked, the letter is published with its new properties (`core.letter.envelope`), the broker confirms that it
is stored, and only then is it acked at its source. What is left, or failed, stays unacked until the passage
ends and is then given back in one word, unless that might destroy it (`rescue`). Whatever happens in between,
a letter that was not confirmed was not acked: it is still in its source. How the intakes follow each other:
`intake_series`. What becomes of each letter: `decision_runner`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from deadletter.amqp.channel import Delivery
from deadletter.amqp.connection import Connection
from deadletter.broker.queue_counts import counts_on
from deadletter.broker.session import to_its_end
from deadletter.core.topology.look_cost import Deliveries
from deadletter.errors import ConnectionLost, MoveFailed, WireError
from deadletter.move.decision_runner import DecisionRunner, Judging
from deadletter.move.flights import Landing
from deadletter.move.intake import Intake, see_back
from deadletter.move.intake_series import Intakes
from deadletter.move.outlet import Cargo, Outlet
from deadletter.move.pace import Overdue, Pace
from deadletter.move.rescue import Rescue
from deadletter.move.verdict import Ended, Terms

WAITING_MAX_BYTES: Final = 32 * 1024 * 1024
TICK_S: Final = 0.1
IDLE_S: Final = 0.3
STALLED_S: Final = 10.0
SECURE_S: Final = 30.0
LAND_S: Final = 5.0
LANDING_S: Final = 0.005
SECURE_PAUSE_S: Final = 0.5
"""How long, at the end, letters are kept in hand that would be destroyed if they were given back."""


class Passage:
    """One passage; `run` it once."""

    def __init__(
        self,
        *,
        taking: Connection,
        giving: Connection,
        source: str,
        judging: Judging,
        run: str,
        user: str,
        budget: int | None,
        terms: Terms,
        deliveries: Deliveries,
        number_from: int = 0,
        one_by_one: int = 0,
        refused: Mapping[str, str] | None = None,
        deadline: float | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.seen: int = 0
        self.acked: int = 0
        self.suspects: list[str] = []
        """Ids of the letters in flight when the publishing side failed."""
        self._taking = taking
        self._giving = giving
        self._source = source
        self._run = run
        self._user = user
        self._budget = budget
        self._terms = terms
        self._number_from = number_from
        self._deadline = deadline
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._asleep = False
        """Whether it waits without a clock, and the next letter has to wake it."""
        self.rescue: Rescue = Rescue(
            deliveries, judging.on_failure, source=source, run=run, number_from=number_from
        )
        self.judge: DecisionRunner = DecisionRunner(
            judging, source=source, refused=refused or {}, rescue=self.rescue, active=self._active
        )
        self.judge.on_resumed = self._settle_soon
        self._intakes = Intakes(
            taking,
            source,
            terms=terms,
            deliveries=deliveries,
            budget=budget,
            one_by_one=one_by_one,
            seen=lambda: self.seen,
            on_delivery=self._on_delivery,
            on_lost=self._fail,
        )
        self._outlet: Outlet | None = None
        self._published_before = 0
        self.adrift: int = 0  # publishes that the broker will not answer any more
        self._error: Exception | None = None
        self._closing = self._stop = self._settling = self._ending = self._pumping = self._paused = False
        self._waiting: deque[tuple[Intake, Delivery]] = deque()
        self._waiting_bytes = self._seen_before = 0
        self._pace = None if terms.rate_per_s is None else Pace(terms.rate_per_s, self._loop.time())
        self._delivered_at = self._loop.time()
        self._blocked_at: float | None = None
        self._overdue = Overdue(terms.confirm_timeout_s)

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker accepts no messages at the moment; None when it does."""
        return self._giving.blocked_reason

    @property
    def published(self) -> int:
        return self._published_before + (0 if self._outlet is None else self._outlet.published)

    @property
    def under_way(self) -> int:
        """How many publishes the broker has not answered."""
        return 0 if self._outlet is None else self._outlet.under_way

    @property
    def _busy(self) -> bool:
        """Whether something is still to come of letters that were taken."""
        return bool(self._waiting or self.judge.pending or self.under_way or self.rescue.waiting)

    @property
    def lost_source(self) -> bool:
        """Whether the connection to the source ended under us."""
        return self._taking.closed.done()

    def _active(self) -> bool:
        return not self._closing and self._error is None

    def stop(self) -> None:
        """End soon: take no more, wait for what is under way, give back the rest."""
        self._stop = True
        self._wake.set()

    async def run(self) -> Ended:
        """Take, decide, publish, ack. However it ends, what was not moved is back in its source."""
        try:
            await self._open_outlet(self._giving)
            self._giving.on_pressure.append(self._balance)
            await self._intakes.begin()
            ended = await self._flow()
            await self._land()
            return ended
        finally:
            if self._balance in self._giving.on_pressure:
                self._giving.on_pressure.remove(self._balance)
            await to_its_end(self._give_back())  # cut, it would leave letters in both places

    async def _open_outlet(self, connection: Connection) -> Outlet:
        if self._outlet is not None:
            self._published_before += self._outlet.published
            self.adrift += self._outlet.under_way
        self._outlet = self.judge.outlet = await Outlet.open(
            connection,
            run=self._run,
            source=self._source,
            user=self._user,
            number_from=self._number_from + self._published_before,
            on_outcome=self._on_outcome,
            on_lost=self._fail,
        )
        return self._outlet

    # -- the loop ----------------------------------------------------------------------------------------
    async def _flow(self) -> Ended:
        while True:
            await self._rest()
            now = self._loop.time()
            if self._stop:
                return Ended.STOPPED
            if self._deadline is not None and now >= self._deadline:
                return Ended.TIME
            if self._budget is not None:
                if self.seen >= self._budget and not self._busy:
                    return Ended.COMPLETE
                ended = await self._is_dry(now)
                if ended is not None:
                    return ended
            if self.rescue.waiting and self._outlet is not None:
                await self.rescue.shelter(self._giving, self._outlet)
            await self._intakes.turn(calm=not self._giving.congested)

    async def _land(self) -> None:
        """Take no more, and wait for everything in the air."""
        self._ending = True
        await self.judge.decided(self._terms.decision_patience_s)
        self._closing = True
        await self._intakes.retire()
        self._settle_soon()
        while self.under_way:
            await self._rest()
        # What failed is no longer in the air either: an end without this look would call it complete.
        if self._error is not None:
            raise self._error
        self._settle()

    async def _rest(self) -> None:
        """Until something happens, or a tick has passed."""
        patience_s = self._patience_s()
        self._asleep = patience_s != TICK_S
        try:
            async with asyncio.timeout(patience_s):
                await self._wake.wait()
        except TimeoutError:
            self._settle(at_once=True)  # no confirmed letter waits for others longer than a tick
        self._asleep = False
        self._wake.clear()
        if self._error is not None:
            raise self._error
        now = self._loop.time()
        if self.seen != self._seen_before:
            self._seen_before, self._delivered_at = self.seen, now
        self._check_time(now)
        self._on_tick()

    def _patience_s(self) -> float | None:
        """A passage that waits for letters does not look at the clock: there may be hundreds of them."""
        # A decision that is still to come publishes later, and its confirm must be missed in time.
        if self._budget is not None or self._busy or self._intakes.ripe:
            return TICK_S
        if self._deadline is None:
            return None
        return max(TICK_S * 2, self._deadline - self._loop.time())

    def _check_time(self, now: float) -> None:
        blocked = self._giving.blocked_reason
        if blocked is not None:
            self._blocked_at = self._blocked_at or now
            self._overdue.reset()
            if now - self._blocked_at > self._terms.blocked_patience_s:
                raise MoveFailed(
                    f"the broker accepts no messages for {self._terms.blocked_patience_s:.0f} s now "
                    f"({blocked}); free memory or disk there and try again"
                )
            return
        self._blocked_at = None
        assert self._outlet is not None
        if self._overdue.look(now, published=self._outlet.published, oldest=self._outlet.oldest):
            error = ConnectionLost(f"no confirm came within {self._terms.confirm_timeout_s:g} s")
            self._giving.abort(error)
            raise error

    async def _is_dry(self, now: float) -> Ended | None:
        """Whether the source has nothing more for us although less came than was expected."""
        if self._busy or now - self._delivered_at < IDLE_S:
            return None
        ready = (await counts_on(self._intakes.present.channel, self._source)).ready
        if ready == 0 and self.seen == self._seen_before:
            return Ended.EMPTY
        return Ended.STALLED if now - self._delivered_at > STALLED_S else None

    # -- letters in --------------------------------------------------------------------------------------
    def _on_delivery(self, intake: Intake, delivery: Delivery) -> None:
        intake.receipts.take(delivery.tag)
        if (rescue := self.rescue).watching and (delivery.redelivered or rescue.every):
            rescue.arrived(intake, delivery)
        if self._ending or self._closing or self._error is not None or self.seen == self._budget:
            return  # unsettled: it is given back
        self.seen += 1
        if intake.retired:
            self._intakes.reopen(intake)
        if self._asleep:
            self._wake.set()
        if self._pace is None:
            self.judge.consider(intake, delivery)
        else:
            self._waiting.append((intake, delivery))
            self._waiting_bytes += len(delivery.message.body)
            if not self._pumping:
                self._pump()
        if self.seen == self._budget or intake.done:
            self._wake.set()
        if self._crowded:
            self._balance()

    def _pump(self) -> None:
        """Forward what the rate allows now, and come back for the rest."""
        assert self._pace is not None
        self._pumping = False
        now = self._loop.time()
        while self._waiting and not self._closing and self._error is None and self._pace.may_go(now):
            intake, delivery = self._waiting.popleft()
            self._waiting_bytes -= len(delivery.message.body)
            self.judge.consider(intake, delivery)
        self._balance()
        if self._waiting and not self._closing:
            self._pumping = True
            self._loop.call_later(self._pace.wait_s, self._pump)
        else:
            self._wake.set()

    # -- what becomes of them ----------------------------------------------------------------------------
    def _on_outcome(self, landed: list[tuple[Cargo, Landing]]) -> None:
        self.judge.landed(landed)
        if self._paused:
            self._balance()
        self._settle_soon()

    def _settle_soon(self) -> None:
        """Ack at the end of this turn of the loop: the confirms of one read become one ack."""
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self._settle)

    def _settle(self, *, at_once: bool = False) -> None:
        self._settling = False
        try:
            self.acked += self._intakes.settle(at_once=at_once)
        except WireError as error:
            self._fail(error)
        if not self.under_way:
            self._wake.set()

    @property
    def _crowded(self) -> bool:
        """Whether more letters would be more than we can hold."""
        kept = 0 if self._outlet is None else self._outlet.kept_bytes
        return self._giving.congested or self._waiting_bytes + kept > WAITING_MAX_BYTES

    def _balance(self) -> None:
        """Stop listening to the source while the other side does not keep up."""
        self._paused = not self._closing and self._crowded
        if self._paused:
            self._taking.pause_reading()
        else:
            self._taking.resume_reading()

    # -- the end -----------------------------------------------------------------------------------------
    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            if self._outlet is not None and self._outlet.lost:
                self.suspects = self._outlet.crash()
                self.rescue.crashed()
        self._wake.set()

    async def _give_back(self) -> None:
        """Ack what is safe; give back the rest in one word, which costs less than hanging up."""
        self._closing = True
        self._balance()
        try:
            await self._intakes.retire()
            if self._outlet is not None and self.blocked_reason is None:
                # Whoever was cancelled did not wait for it: what lands now is not given back.
                await self._landed(self._outlet, self._loop.time() + LAND_S)
            self._settle()
            if self.rescue.at_risk:
                await self._secure()
                self._settle()
            held = await self._intakes.give_back()
            if self._outlet is not None:
                await self._outlet.close()
            if held:
                await see_back(self._taking, self._source, held)
        except WireError:
            # Without the connection we hold no letter: the broker puts them back.
            self._taking.abort(ConnectionLost("letters could not be given back in good order"))

    async def _secure(self) -> None:
        """Keep what must not be given back until it is safe, or there is no hope."""
        until = self._loop.time() + SECURE_S
        while self.rescue.at_risk and self._loop.time() < until and not self._taking.closed.done():
            try:
                outlet = await self._lifeboat()
                await self._landed(outlet, until)  # what is under way may be safe in its new home
                for intake in self.rescue.send_all(outlet):
                    self._intakes.reopen(intake)
                await self._landed(outlet, until)
                if self.rescue.waiting:
                    await self.rescue.shelter(self._taking, outlet)
                    await self._landed(outlet, until)
            except WireError:
                self.rescue.crashed()  # the side we publish on is lost; as long as the other is there we hold
            if self.rescue.at_risk:
                await asyncio.sleep(SECURE_PAUSE_S)
        self.rescue.despair()

    async def _lifeboat(self) -> Outlet:
        """A channel to publish on, also when the broker has closed the one we had."""
        if self._outlet is not None and not self._outlet.lost:
            return self._outlet
        connection = self._taking if self._giving.closed.done() else self._giving
        return await self._open_outlet(connection)

    async def _landed(self, outlet: Outlet, until: float) -> None:
        """Until the broker has answered what is under way."""
        while outlet.under_way and not outlet.lost and self._loop.time() < until:  # noqa: ASYNC110 -- to a time
            await asyncio.sleep(LANDING_S)
        if outlet.lost:
            self.rescue.crashed()
