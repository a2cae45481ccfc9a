"""The replays of one vhost that this instance works on: leased from the store, one run each.

A replay is worked on by one instance; its lease is renewed every few seconds, and when the instance is gone
another one takes it over after the lease is over. Whoever could not renew a lease in time publishes nothing
more of that replay, because somebody else may do so by then.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link
from deadletter.core.letter.header_values import shown
from deadletter.errors import DeadletterError, StoreError, WireError
from deadletter.operations.records.where_programs import Programs
from deadletter.service.guarding.gates import Gates
from deadletter.service.replaying.outcome_words import OutcomeWords
from deadletter.service.replaying.replay_edits import ReplayEdits
from deadletter.service.replaying.replay_ground import ReplayGround
from deadletter.service.replaying.replay_run import ReplayRun
from deadletter.service.replaying.store_access import StoreAccess
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.survey import UnackedSeen
from deadletter.service.telling.service_events import Recovered, ReplaysSeen, ServiceEvent, Trouble
from deadletter.store.replays.replay_views import ReplayView

LEASE_S: Final = 10.0
RENEW_S: Final = 1.0
PAUSE_S: Final = 5.0
"""Before a run that failed for a reason of its own is tried again."""


class Replayer:
    """`on` each link of its vhost. Without a storekeeper it does nothing."""

    def __init__(
        self,
        keeper: Storekeeper | None,
        *,
        vhost: str,
        alone: bool,
        ways: WaysBack,
        gates: Gates,
        unacked: Callable[[str], UnackedSeen | None],
        emit: Callable[[ServiceEvent], None],
        schemas: Sequence[tuple[str, Path]] = (),
    ) -> None:
        """`alone`: this vhost is the only one of the service, and replays that name none are its own.
        `schemas`: what edited bodies must be, by queue."""
        self._keeper = keeper
        self._vhosts = [vhost, ""] if alone else [vhost]
        self._emit = emit
        self._instance = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(6)}"
        self._access = StoreAccess(lambda: keeper.replays if keeper is not None else None, emit)
        self._programs = Programs()
        self._ground = ReplayGround(
            ways=ways,
            gates=gates,
            unacked=unacked,
            programs=self._programs,
            edits=ReplayEdits(schemas),
            emit=emit,
        )
        self._runs: dict[int, ReplayRun] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._failed: dict[int, float] = {}
        """Runs that failed for a reason of their own, and when they may be tried again."""
        self._leased_until = 0.0
        self._stopped = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    def stop(self) -> list[asyncio.Task[Any]]:
        """Mark no more letters; returns what is still at work."""
        self._stopped.set()
        self._access.hurry()
        for run in self._runs.values():
            run.stop()
        return [] if self._ended.is_set() else [asyncio.ensure_future(self._ended.wait())]

    async def close(self) -> None:
        await self._programs.close()
        await self._ground.edits.close()

    async def on(self, link: Link) -> None:
        """Until it is stopped. Raises when the connection is lost; what runs goes on with the next link."""
        if self._keeper is None:
            return
        self._ended.clear()
        words = OutcomeWords(self._access, self._emit)
        hearing = asyncio.ensure_future(words.on(link))
        try:
            while not self._stopped.is_set():
                await self._look(link)
                await self._until_something()
                self._collect()
            await self._finish()
        finally:
            hearing.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(hearing, *self._tasks.values(), return_exceptions=True)
            self._tasks.clear()
            self._ended.set()

    async def _look(self, link: Link) -> None:
        """Renew what is ours, and take up what nobody has."""
        asked_at = time.monotonic()
        try:
            if self._runs and asked_at > self._leased_until:
                await self._abandon(await self._taken_from_us())
            leased = await self._access.once(
                lambda store: store.leased(
                    self._instance,
                    now_ms=time.time_ns() // 1_000_000,
                    lease_ms=int(LEASE_S * 1000),
                    vhosts=self._vhosts,
                )
            )
        except StoreError:
            if self._runs and asked_at > self._leased_until:
                await self._abandon(list(self._runs))
            return
        self._leased_until = asked_at + 0.8 * LEASE_S
        await self._abandon(self._runs.keys() - {view.id for view in leased})
        for view in leased:
            self._take_up(view, link)
        waiting = sum(bool(run.letters.waits) for run in self._runs.values())
        self._emit(ReplaysSeen(going=len(self._runs) - waiting, waiting=waiting))

    async def _taken_from_us(self) -> list[int]:
        """Runs that others had, when the line was away, or we stood still: what they know is old."""
        holders = await self._access.once(lambda store: store.holders(self._runs))
        return [replay for replay in self._runs if holders.get(replay) != self._instance]

    def _take_up(self, view: ReplayView, link: Link) -> None:
        if view.id in self._tasks:
            return
        if self._failed.get(view.id, 0.0) > time.monotonic():
            return
        run = self._runs.get(view.id)
        if run is None:
            run = self._runs[view.id] = ReplayRun(view, self._access, self._ground)
        self._tasks[view.id] = asyncio.create_task(run.on(link))

    async def _abandon(self, some: Iterable[int]) -> None:
        """Somebody else has these now, or may have them; or they are over."""
        for replay in list(some):
            run = self._runs.pop(replay)
            run.abandon()
            if (task := self._tasks.pop(replay, None)) is not None:
                task.cancel()
                await asyncio.wait({task})
            await run.close()

    async def _until_something(self) -> None:
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait(
                {stopped, *self._tasks.values()}, timeout=RENEW_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopped.cancel()

    def _collect(self) -> None:
        """Runs that came to an end. A lost line is for the vhost's worker; what else fails is said."""
        for replay, task in list(self._tasks.items()):
            if not task.done():
                continue
            del self._tasks[replay]
            error = task.exception()
            match error:
                case None:
                    if not self._stopped.is_set():
                        self._runs.pop(replay, None)
                    if self._failed.pop(replay, None) is not None:
                        self._emit(Recovered(what=f"replay:{replay}"))
                case WireError():
                    raise error
                case DeadletterError():
                    self._trouble(replay, str(error))
                case _:
                    said = f"{type(error).__name__}: {shown(str(error), 300)}"
                    self._trouble(replay, f"a mistake of ours, please report it: {said}")

    def _trouble(self, replay: int, why: str) -> None:
        self._failed[replay] = time.monotonic() + PAUSE_S
        self._emit(Trouble(what=f"replay:{replay}", why=why, seconds=PAUSE_S))

    async def _finish(self) -> None:
        """What is marked is sent and settled; then others may have the leases."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            self._collect()
        for run in self._runs.values():
            await run.close()
        self._runs.clear()
        try:
            await self._access.once(lambda store: store.give_up(self._instance))
        except StoreError:
            return  # they are over by themselves
