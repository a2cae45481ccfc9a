"""Sweeps: a dead-letter queue that is emptied now and then, on start, or when somebody asks.

A sweep looks at the letters that were there when it began, each once: what dies again meanwhile waits for the
next one, so nothing spins. A sweep that a gate held is not over: the letters stay in their queue, and when
the gate lets them they go on (`go_on`), also on the next connection. Such a sweep counts towards no limit
unless it moved something. Nor does one that was refused, or broken off, because letters would not be safe.

The clock of a watch belongs to one instance (a lease); when it dies another takes over within seconds. A
sweep itself has a lease of its own, so one that somebody asks for does not meet one that is running.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from deadletter.broker.lease import Lease
from deadletter.broker.session import Link
from deadletter.config.settings import Mode, Watch
from deadletter.core.deciding.backoff import compile_schedule
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.errors import ConnectionLost, DeadletterError, ServiceRefused
from deadletter.move.asked_limits import LimitSource, by_default
from deadletter.move.courier import Bounds, Courier, Judging, MoveTally, Terms
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.kept import Kept, Shut, Soon, Take, in_words, next_step
from deadletter.service.telling.service_events import (
    KeptBy,
    LeaseChanged,
    Recovered,
    ServiceEvent,
    SweepEnded,
    Trouble,
)

LEASE_S: Final = 2.0
"""Before asking again for a lease that another instance holds."""
STEP_S: Final = 0.25
"""Between two looks at a gate."""
PAUSE_MAX_S: Final = 60.0
"""Between two looks at letters of which hardly one could go: each of them is given back."""
PAUSES: Final = 1_000
"""So many different pauses a back-off may have; the last is used from there on."""
GATE: Final = "gate"
"""Who asked for a sweep that goes on: the gate that had held it."""


@dataclass(frozen=True, slots=True)
class Halted:
    """The fate of a letter about which nothing was decided: it would not be safe in our queues."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What became of a sweep that somebody asked for."""

    dlq: str
    ended: SweepEnded | None = None
    refused: str = ""
    """Why there was none."""
    elsewhere: bool = False
    """There was none because it is being swept already."""
    halted: str = ""
    """Why it was broken off: letters were not safe any more."""


@dataclass(slots=True)
class _Run:
    """One sweep, over all its passes."""

    seen: int = 0
    moved: int = 0
    left: int = 0
    failed: int = 0
    seconds: float = 0.0
    halted: str = ""


class Sweeper:
    """The sweeps of one dead-letter queue."""

    def __init__(
        self,
        dlq: str,
        watch: Watch,
        judging: Callable[[], Judging],
        *,
        gates: Gates,
        prefetch: int,
        limits: LimitSource = by_default,
        emit: Callable[[ServiceEvent], None],
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.dlq = dlq
        self.watch = watch
        self._judging = judging
        self._gates = gates
        self._prefetch = prefetch
        self._limits = limits
        self._emit = emit
        self._dice = dice
        self._turns = 0
        """Sweeps by the clock since the start of the service;"""
        self._sweeps = 0
        """and how many of them a gate did not hold."""
        self._courier: Courier | None = None
        self._stopped = asyncio.Event()
        self._sweeping = asyncio.Lock()
        """The lease is the connection's: it does not keep two of us apart."""
        self._kept = Kept()
        self._held = asyncio.Event()
        self._in_vain = 0
        """Looks in a row at letters of several gates of which hardly one could go;"""
        self._not_before = 0.0
        """and when to look again, on the loop's clock."""
        self._in_trouble = False
        self.last: SweepEnded | None = None
        self.next_at: float | None = None
        """On the loop's clock; None when none is planned."""

    def stop(self) -> None:
        """Take no more; finish what is under way."""
        self._stopped.set()
        self._held.set()
        if self._courier is not None:
            self._courier.stop()

    async def on(self, link: Link) -> None:
        """By the clock of the watch, until it is stopped. Raises when the connection is lost."""
        match self.watch.mode:
            case Mode.CONSUME | Mode.MANUAL:
                await self._stopped.wait()
            case Mode.STARTUP:
                while not self._turns and not self._stopped.is_set():
                    await self._take_turn(link, "startup")
                    if not self._turns:
                        await self._rest(LEASE_S)
                await self._stopped.wait()
            case Mode.SWEEP:
                await self._by_the_clock(link)

    async def _by_the_clock(self, link: Link) -> None:
        what = f"clock.{self.dlq}"
        lease: Lease | None = None
        while not self._stopped.is_set() and lease is None:
            lease = await Lease.take(await link.connection("consume"), what)
            if lease is None:
                await self._rest(LEASE_S)
        if lease is None:
            return
        self._emit(LeaseChanged(name=what, held=True))
        try:
            while not self._stopped.is_set():
                limit = self.watch.limit_per_boot
                if limit is not None and self._sweeps >= limit:
                    self.next_at = None
                    await self._stopped.wait()
                    return
                # A connection that was lost in between does not begin the pause anew; one that was lost in
                # the middle of a sweep has it go on at once.
                if self.next_at is None:
                    self.next_at = asyncio.get_running_loop().time() + self._wait_s()
                await self._rest(self.next_at - asyncio.get_running_loop().time())
                if not self._stopped.is_set():
                    await self._take_turn(link, "timer")
                    self.next_at = None
        finally:
            self._emit(LeaseChanged(name=what, held=False))
            await lease.release()

    def _wait_s(self) -> float:
        """Before the next sweep. The first of an interval is at once; a back-off begins with its pause."""
        if self.watch.pauses is None:
            assert self.watch.every_ms is not None
            return self.watch.every_ms / 1000 if self._turns else 0.0
        schedule = compile_schedule(self.watch.pauses, PAUSES)
        pause_ms = schedule.delay_ms(self._sweeps, self._dice())
        assert pause_ms is not None
        return pause_ms / 1000

    async def _take_turn(self, link: Link, why: str) -> None:
        """A sweep of the clock's; it counts once it was made, and towards a limit if it was not in vain."""
        try:
            async with self._sweeping:
                swept = await self._sweep(link, why)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            if self.watch.mode is Mode.SWEEP:
                self._turns += 1
            self._fail(f"the sweep did not happen: {error}")
            return
        if (swept.refused or swept.halted) and self.watch.mode is Mode.STARTUP:
            return
        self._turns += 1
        if swept.ended is not None and (not swept.ended.kept or swept.ended.moved):
            self._sweeps += 1

    async def sweep(self, link: Link, why: str) -> Swept:
        """One sweep, now."""
        if self._sweeping.locked():
            return Swept(dlq=self.dlq, refused="it is being swept already", elsewhere=True)
        async with self._sweeping:
            return await self._sweep(link, why)

    async def go_on(self, link: Link) -> None:
        """With what a gate held, whenever it lets something through, until stopped."""
        while not self._stopped.is_set():
            if not self._kept.by:
                self._held.clear()
                await self._held.wait()
            elif self._too_soon or isinstance(next_step(self._kept, self._gates.allowance), Shut):
                await self._rest(STEP_S)
            else:
                async with self._sweeping:
                    await self._go_on(link)

    # -- one sweep ---------------------------------------------------------------------------------------
    async def _sweep(self, link: Link, why: str) -> Swept:
        lease = await self._lease(link)
        if lease is None:
            refused = "it is being swept already, by another instance"
            return Swept(dlq=self.dlq, refused=refused, elsewhere=True)
        try:
            run = _Run()
            tally, self._kept = await self._pass(link, run, Bounds(), None)
            self._in_vain, self._not_before = 0, 0.0
            run.seen, run.moved, run.seconds = _seen(tally), tally.moved, tally.seconds
            run.left, run.failed = tally.left, tally.failed
            await self._while_it_goes(link, run)
        finally:
            await lease.release()
        if run.halted and not run.moved:
            raise ServiceRefused(run.halted)
        if self._in_trouble:
            self._in_trouble = False
            self._emit(Recovered(what=f"queue:{self.dlq}"))
        return self._end(run, why)

    async def _go_on(self, link: Link) -> None:
        lease = await self._lease(link)
        if lease is None:
            await self._rest(LEASE_S)
            return
        run = _Run(seen=self._kept.letters + self._kept.others, left=self._kept.letters)
        try:
            await self._while_it_goes(link, run)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            # What is left is looked at by the next sweep.
            self._kept = Kept()
            self._fail(f"the sweep does not go on: {error}")
            return
        finally:
            await lease.release()
        if run.moved or not self._kept.by:
            self._end(run, GATE)

    @property
    def _too_soon(self) -> bool:
        return asyncio.get_running_loop().time() < self._not_before

    async def _lease(self, link: Link) -> Lease | None:
        return await Lease.take(await link.connection("consume"), f"sweep.{self.dlq}")

    async def _while_it_goes(self, link: Link, run: _Run) -> None:
        """On, as long as a gate lets some of what it kept through."""
        while not self._stopped.is_set() and not self._too_soon:
            step = next_step(self._kept, self._gates.allowance)
            match step:
                case Shut():
                    break
                case Soon():
                    await self._rest(STEP_S)
                case Take(count=count, rate_per_s=rate_per_s):
                    await self._take(link, run, count, rate_per_s)

    async def _take(self, link: Link, run: _Run, count: int, rate_per_s: float | None) -> None:
        before = self._kept
        tally, kept = await self._pass(link, run, Bounds(count=count), rate_per_s)
        gone, seen = tally.moved + tally.dropped, _seen(tally)
        # Where fewer came than were asked for, somebody else took the others.
        untouched = before.letters + before.others - count if seen == count else 0
        if before.alone is not None and untouched > 0:
            by = Counter(kept.by)
            by[before.alone] += untouched
            kept = replace(kept, by=dict(by))
        self._kept = kept
        run.moved += tally.moved
        run.left, run.failed = tally.left + untouched, tally.failed
        run.seconds += tally.seconds
        if before.alone is not None:
            if not gone:
                await self._rest(STEP_S)
        elif gone * 2 >= seen:
            self._in_vain = 0
        else:
            self._in_vain += 1
            pause_s = min(PAUSE_MAX_S, 2.0 ** min(self._in_vain, 10))
            self._not_before = asyncio.get_running_loop().time() + pause_s

    async def _pass(
        self, link: Link, run: _Run, bounds: Bounds, rate_per_s: float | None
    ) -> tuple[MoveTally, Kept]:
        """Look at letters, each once. What is left of them: by the gate that keeps them, and the others."""
        by: Counter[str] = Counter()
        judging = self._judging()

        def on_fate(fate: object) -> None:
            judging.on_fate(fate)
            if isinstance(fate, LetterFate) and fate.step is Step.LEFT and fate.gate:
                by[fate.gate] += 1
            elif isinstance(fate, Halted):
                run.halted = fate.why

        self._courier = Courier(
            [],
            source=self.dlq,
            decide=replace(judging, on_fate=on_fate),
            bounds=bounds,
            terms=Terms(prefetch=self._prefetch, rate_per_s=rate_per_s, blocked_patience_s=float("inf")),
            limits=self._limits,
        )
        if self._stopped.is_set():
            self._courier.stop()
        try:
            tally = await self._courier.on(link)
        finally:
            self._courier = None
        return tally, Kept(by=dict(by), others=max(0, tally.left - by.total()) + tally.failed)

    def _end(self, run: _Run, why: str) -> Swept:
        kept = tuple(
            KeptBy(gate=gate, letters=letters, why=in_words(gate, letters, self._gates.flow(gate)))
            for gate, letters in self._kept.by.items()
        )
        if kept:
            self._held.set()
        ended = SweepEnded(
            dlq=self.dlq,
            seen=run.seen,
            moved=run.moved,
            left=run.left,
            failed=run.failed,
            seconds=run.seconds,
            why=why,
            kept=kept,
        )
        self.last = ended
        self._emit(ended)
        return Swept(dlq=self.dlq, ended=ended, halted=run.halted)

    def _fail(self, why: str) -> None:
        self._in_trouble = True
        self._emit(Trouble(what=f"queue:{self.dlq}", why=why))

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), max(0.0, seconds))


def _seen(tally: MoveTally) -> int:
    return tally.moved + tally.left + tally.failed + tally.dropped
