"""Sweeps: a dead-letter queue that is emptied now and then, on start, or when somebody asks.

A sweep looks at the letters that were there when it began, each once: what dies again meanwhile waits for the
next one, so nothing spins. The clock of a watch belongs to one instance (a lease); when it dies another takes
over within seconds. A sweep itself has a lease of its own, so one that somebody asks for does not meet one
that is running.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deadletter.broker.courier import Courier, Judging, Tally, Terms
from deadletter.broker.lease import Lease
from deadletter.broker.session import Link
from deadletter.config.settings import Mode, Watch
from deadletter.core.backoff import compile_schedule
from deadletter.errors import ConnectionLost, DeadletterError
from deadletter.service.events import Event, LeaseChanged, SweepEnded, Trouble

LEASE_S: Final = 2.0
"""Before asking again for a lease that another instance holds."""
PAUSES: Final = 1_000
"""So many different pauses a back-off may have; the last is used from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What became of a sweep that somebody asked for."""

    dlq: str
    seen: int = 0
    moved: int = 0
    left: int = 0
    failed: int = 0
    seconds: float = 0.0
    refused: str = ""
    """Why there was none."""


class Sweeper:
    """The sweeps of one dead-letter queue."""

    def __init__(
        self,
        dlq: str,
        watch: Watch,
        judging: Callable[[], Judging],
        *,
        prefetch: int,
        emit: Callable[[Event], None],
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.dlq = dlq
        self.watch = watch
        self._judging = judging
        self._prefetch = prefetch
        self._emit = emit
        self._dice = dice
        self._sweeps = 0
        """By the clock, since the start of the service."""
        self._courier: Courier | None = None
        self._stopped = asyncio.Event()
        self.last: SweepEnded | None = None
        self.next_at: float | None = None
        """On the loop's clock; None when none is planned."""

    def stop(self) -> None:
        """Take no more; finish what is under way."""
        self._stopped.set()
        if self._courier is not None:
            self._courier.stop()

    async def on(self, link: Link) -> None:
        """By the clock of the watch, until it is stopped. Raises when the connection is lost."""
        match self.watch.mode:
            case Mode.CONSUME | Mode.MANUAL:
                await self._stopped.wait()
            case Mode.STARTUP:
                if not self._sweeps:
                    self._sweeps += 1
                    await self._sweep_unless_another(link, "startup")
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
                # A connection that was lost in between does not begin the pause anew.
                if self.next_at is None:
                    self.next_at = asyncio.get_running_loop().time() + self._pause_s()
                await self._rest(self.next_at - asyncio.get_running_loop().time())
                if not self._stopped.is_set():
                    self.next_at = None
                    self._sweeps += 1
                    await self._sweep_unless_another(link, "timer")
        finally:
            self._emit(LeaseChanged(name=what, held=False))
            await lease.release()

    def _pause_s(self) -> float:
        """Before the next sweep. The first of an interval is at once; a back-off begins with its pause."""
        if self.watch.pauses is None:
            assert self.watch.every_ms is not None
            return self.watch.every_ms / 1000 if self._sweeps else 0.0
        schedule = compile_schedule(self.watch.pauses, PAUSES)
        pause_ms = schedule.delay_ms(self._sweeps, self._dice())
        assert pause_ms is not None
        return pause_ms / 1000

    async def sweep(self, link: Link, why: str) -> Swept:
        """One sweep, now."""
        lease = await Lease.take(await link.connection("consume"), f"sweep.{self.dlq}")
        if lease is None:
            return Swept(dlq=self.dlq, refused="it is being swept already, perhaps by another instance")
        try:
            tally = await self._move(link)
        finally:
            await lease.release()
        ended = SweepEnded(
            dlq=self.dlq,
            seen=tally.moved + tally.left + tally.failed + tally.dropped,
            moved=tally.moved,
            left=tally.left,
            failed=tally.failed,
            seconds=tally.seconds,
            why=why,
        )
        self.last = ended
        self._emit(ended)
        return Swept(
            dlq=self.dlq,
            seen=ended.seen,
            moved=ended.moved,
            left=ended.left,
            failed=ended.failed,
            seconds=ended.seconds,
        )

    async def _sweep_unless_another(self, link: Link, why: str) -> None:
        try:
            await self.sweep(link, why)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            self._emit(Trouble(what=f"queue:{self.dlq}", why=f"the sweep did not happen: {error}"))

    async def _move(self, link: Link) -> Tally:
        self._courier = Courier(
            [],
            source=self.dlq,
            decide=self._judging(),
            terms=Terms(prefetch=self._prefetch, blocked_patience_s=float("inf")),
        )
        if self._stopped.is_set():
            self._courier.stop()
        try:
            return await self._courier.on(link)
        finally:
            self._courier = None

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stopped.wait()
        except TimeoutError:
            return
