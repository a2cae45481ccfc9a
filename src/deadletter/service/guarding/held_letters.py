"""Held letters: what a guard keeps waits in `deadletter.held.<key>`, and goes from there when it may.

One instance at a time empties such a queue, under a lease: one probe, not five, and a rate that is the rate.
It asks the gate how many may go (`Gates.allowance`), moves so many with the safe move, and asks again. When
its instance dies the lease is gone with the connection, and another goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from deadletter.broker.lease import Lease
from deadletter.broker.queue_counts import counts_of_existing
from deadletter.broker.session import Link
from deadletter.core.layouts.naming import HELD
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.errors import ConnectionLost, DeadletterError, QueueMissing
from deadletter.move.asked_limits import LimitSource, by_default
from deadletter.move.courier import Bounds, Courier, Judging, Terms
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.guarded_release import GuardedRelease, Holds
from deadletter.service.telling.fate_counter import FateCounter
from deadletter.service.telling.service_events import LeaseChanged, ServiceEvent, Trouble

STEP_S: Final = 0.25
"""Between two looks at a gate that lets nothing through, at least."""
STEP_MAX_S: Final = 1.0
LEASE_S: Final = 2.0
"""Before asking again for a lease that another instance holds."""


class Holding:
    """Empties one queue of held letters."""

    def __init__(
        self,
        queue: str,
        *,
        gates: Gates,
        ways: Holds,
        fates: FateCounter,
        emit: Callable[[ServiceEvent], None],
        prefetch: int,
        limits: LimitSource = by_default,
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.queue = queue
        self._halted = halted
        """Whether nothing may go at all: it would leave a safe queue for one where letters vanish."""
        self._gates = gates
        self._fates = fates
        self._emit = emit
        self._prefetch = prefetch
        self._limits = limits
        self._key = queue.removeprefix(HELD)
        self._releaser = GuardedRelease(
            queue, ServedLayout.RETURN, keeper=gates, ways=ways, waiting=True, on_gate=self._learn
        )
        self._judging = Judging(
            decide=self._releaser.decide,
            again=self._releaser.again,
            on_fate=fates.on_fate,
            on_failure=fates.failure_in(queue),
            on_missing=ways.forget,
        )

    def _learn(self, gate: str) -> None:
        """A name that was too long is shortened, so only a letter tells which gate keeps it."""
        self._key = gate

    async def on(self, link: Link) -> None:
        """Until the queue is empty, or another instance has the lease."""
        what = f"held.{self.queue.removeprefix(HELD)}"
        lease = await Lease.take(await link.connection("consume"), what)
        if lease is None:
            await asyncio.sleep(LEASE_S)
            return
        self._emit(LeaseChanged(name=what, held=True))
        try:
            while await self._step(link):
                self._fates.tell()  # the gate learns what became of them before it is asked again
        except QueueMissing:
            return
        except ConnectionLost:
            raise
        except DeadletterError as error:
            self._emit(Trouble(what=f"queue:{self.queue}", why=str(error), seconds=LEASE_S))
            await asyncio.sleep(LEASE_S)
        finally:
            self._emit(LeaseChanged(name=what, held=False))
            await lease.release()

    async def _step(self, link: Link) -> bool:
        """Let through what may go now; False when there is nothing left."""
        if self._halted():
            await asyncio.sleep(STEP_MAX_S)
            return True
        allowed = self._gates.allowance(self._key)
        if allowed.count == 0 or allowed.wait_s > 0:
            if await self._depth(link) == 0:
                return False
            await asyncio.sleep(min(max(allowed.wait_s, STEP_S), STEP_MAX_S))
            return True
        courier = Courier(
            [],
            source=self.queue,
            decide=self._judging,
            bounds=Bounds(count=allowed.count),
            terms=Terms(
                prefetch=self._prefetch, rate_per_s=allowed.rate_per_s, blocked_patience_s=float("inf")
            ),
            limits=self._limits,
        )
        tally = await courier.on(link)
        if not tally.moved:
            if await self._depth(link) == 0:
                return False
            await asyncio.sleep(STEP_S)
        return True

    async def _depth(self, link: Link) -> int:
        return (await counts_of_existing(await link.connection("declare"), self.queue)).ready
