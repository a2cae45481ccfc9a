"""One replay at work, for as long as this instance has its lease.

It goes on over lost lines: what was under way is sent again and marked as doubtful. Told to stop it marks no
more letters, and what is marked is sent and settled. One that is paused, stopped or cancelled sends nothing;
what became of the letters that it had sent is waited for all the same.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, assert_never

from deadletter.broker.session import Link
from deadletter.core.replaying.replay_pace import FinishReplay, StopReplay
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange
from deadletter.errors import SendingRefused, TargetMissing, UsageError
from deadletter.move.sending import Sending
from deadletter.service.replaying.replay_consignment import (
    PORTION,
    QUIET_S,
    ReplayConsignment,
)
from deadletter.service.replaying.replay_ground import ReplayGround
from deadletter.service.replaying.settling import Settling
from deadletter.service.replaying.store_access import StoreAccess
from deadletter.store.replays.replay_views import ClaimedLetter, ReplayView

IN_FLIGHT: Final = 4_000
FOUND_AGAIN_MOST: Final = 10
"""So often the exchange it goes by may vanish under it."""


class ReplayRun:
    """`on` each link, one after the other; `close` when it is not taken up again."""

    def __init__(self, view: ReplayView, access: StoreAccess, ground: ReplayGround) -> None:
        self.id: Final = view.id
        self._access = access
        self._settling = Settling(view.id, access, holder=view.holder)
        self.letters: Final = ReplayConsignment(view, access, ground, self._settling)
        self.letters.under_way = lambda: self._sending is not None and bool(self._sending.unsent)
        self.letters.stop_sending = lambda: None if self._sending is None else self._sending.stop()
        self._sending: Sending[ClaimedLetter] | None = None
        """None: nothing is under way, and nobody sends."""
        self._ground = ground
        self._vanished = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Mark no more; what is marked is sent and settled."""
        self._stopped.set()
        self.letters.stop()

    def abandon(self) -> None:
        """The lease is over, and somebody else may have it: publish nothing any more."""
        self.stop()
        if self._sending is not None:
            self._sending.stop()

    async def on(self, link: Link) -> None:
        """Until it is over or stopped. Raises when the line is lost; then it goes on with the next link."""
        settling = asyncio.ensure_future(self._settling.run())
        try:
            while not self._stopped.is_set() and not await self._over():
                if self.letters.view.state is ReplayState.FREEZING:
                    await self._freeze()
                elif self.letters.view.state is ReplayState.RUNNING or self._sending is not None:
                    await self._send(link)
                    await self._settling.drained()
                    await self._conclude()
                else:
                    await self.letters.take_stock()
                    await self.letters.mark_quiet()
                    await self._access.ask(lambda store: store.finish(self.id))
                    await self._rest()
            if self._sending is not None:  # stopped before it came to it: these are marked
                await self._send(link)
                await self._settling.drained()
        finally:
            settling.cancel()
            await asyncio.wait({settling})
        await self._ground.edits.release(self.id)

    async def close(self) -> None:
        """What is known is noted; what is not is for whoever has it next."""
        if self._sending is not None:
            await self._sending.close()
        await self._ground.edits.release(self.id)  # only now: who was asked for letters may be editing them
        await self._settling.last()

    async def _over(self) -> bool:
        self.letters.follow(await self._access.ask(lambda store: store.view(self.id)))
        return self.letters.view.ended_ms is not None

    async def _freeze(self) -> None:
        asked = self.letters.view.selection
        try:
            where = (
                await self._ground.programs.question(asked.where, asked.scope.masks) if asked.where else None
            )
            await self._access.ask(lambda store: store.freeze_some(self.id, where=where))
        except UsageError as error:
            why = f"its selection cannot be answered: {error}"
            await self._access.ask(lambda store: store.stop(self.id, why))

    async def _send(self, link: Link) -> None:
        if self._sending is None:
            self._sending = Sending(self.letters, in_flight=IN_FLIGHT, ahead=PORTION)
        sending = self._sending
        while True:
            try:
                await sending.on(link)
            except SendingRefused as error:
                self._vanished += 1
                by_exchange = isinstance(self.letters.view.target, ToExchange)
                if isinstance(error, TargetMissing) and not by_exchange and self._vanished < FOUND_AGAIN_MOST:
                    await self.letters.ways.find_anew()  # a way back is declared anew, and letters go on
                    continue
                self.letters.give_up(str(error))
                await sending.recalled()  # those that are just being marked are ours, too
                self._keep(sending, str(error))
            else:
                if self.letters.held_back:
                    await self.letters.hand_back(await sending.recalled())
            break
        await sending.close()
        self._sending = None

    def _keep(self, sending: Sending[ClaimedLetter], why: str) -> None:
        """The broker wants none of them: those that are marked did not go."""
        for one in sending.unsent:
            self._settling.refused(one.row, why)

    async def _conclude(self) -> None:
        end, self.letters.end = self.letters.end, None
        match end:
            case StopReplay(why=why):
                with suppress(UsageError):  # it is over already: somebody was quicker
                    await self._access.ask(lambda store: store.stop(self.id, why))
            case FinishReplay():
                await self._access.ask(lambda store: store.finish(self.id))
            case None:
                return
            case _:
                assert_never(end)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(QUIET_S):
                await self._stopped.wait()
        except TimeoutError:
            return
