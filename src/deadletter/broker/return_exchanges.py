"""The ways back: one fanout exchange per origin, declared when the first letter needs it.

`deadletter.return.<queue>` is bound to that queue alone: the letter keeps its own routing key, and no `CC`
can copy it. Where we may not declare or bind, the way is the queue's name through the default exchange. An
origin that is not there has no way; its letters are parked.

Publishing to an exchange that is missing closes the channel, so none is used before it is known to be there
on this connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from deadletter.amqp.channel import Channel
from deadletter.amqp.connection import Connection
from deadletter.broker.asked_delays import open_delay
from deadletter.broker.queue_counts import counts_of, counts_on
from deadletter.broker.session import Link
from deadletter.core.guards.health import OriginState
from deadletter.core.layouts.naming import held_name, return_exchange_name
from deadletter.core.layouts.pieces import REFUSING
from deadletter.core.topology.vhost import Queue
from deadletter.errors import (
    AccessRefused,
    ChannelClosed,
    ConnectionLost,
    NotFound,
    PreconditionFailed,
)

KNOWN_MAX: Final = 10_000
FRESH_S: Final = 5.0
"""An origin that was looked at longer ago is looked at again before a letter goes there: its consumers may
have gone meanwhile. Busy origins are looked at every second anyway."""

HOME_S: Final = 60.0
"""So long a way is known; then it is found anew. One whose queue went is deleted when nobody knows it any
more (`broker.housekeeping`): publishing to an exchange that is missing would close the channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """How to reach an origin: by the exchange that leads to it alone, or by its name."""

    origin: str
    exchange: str
    """Empty: by name, through the default exchange; where we may not bind."""


class WaysBack:
    """The return exchanges of origins, on one link at a time; `renew` it with each new one."""

    def __init__(
        self, repair: Callable[[], Awaitable[None]], on_state: Callable[[str, OriginState], None]
    ) -> None:
        self._declare_ours = repair
        self._on_state = on_state
        self._link: Link | None = None
        self._homes: dict[str, Home] = {}
        self._looked_at: dict[str, float] = {}
        self._bound_at: dict[str, float] = {}
        self._finding: dict[str, asyncio.Task[Home | None]] = {}
        self._held: set[str] = set()
        self._making: dict[str, asyncio.Task[None]] = {}
        self._looking: Channel | None = None
        self._repairing: asyncio.Task[None] | None = None

    def renew(self, link: Link) -> None:
        """A new link: what was there may not be there any more."""
        self._link = link
        self.forget()
        self._finding.clear()
        self._making.clear()
        self._looking = None

    def forget(self) -> None:
        """Somebody deleted an exchange of ours, and nobody says which: each way is found anew."""
        self._homes.clear()
        self._looked_at.clear()
        self._bound_at.clear()
        self._held.clear()

    def known(self, origin: str) -> Home | None:
        """The way to an origin whose state is known as well."""
        now = time.monotonic()
        if now - self._looked_at.get(origin, -FRESH_S) >= FRESH_S:
            return None
        return None if self._stale(origin, now) else self._homes.get(origin)

    def _stale(self, origin: str, now: float) -> bool:
        return now - self._bound_at.get(origin, -HOME_S) >= HOME_S

    async def find(self, origin: str, *, again: bool = False) -> Home | None:
        """The way to an origin, declared if need be; None when there is no such queue."""
        if again:
            self._homes.pop(origin, None)
        elif (home := self.known(origin)) is not None:
            return home
        task = self._finding.get(origin)
        if task is None or task.done():
            task = self._finding[origin] = asyncio.create_task(self._find(origin))
        try:
            return await asyncio.shield(task)
        finally:
            if task.done():
                self._finding.pop(origin, None)

    async def holding(self, gate: str, *, again: bool = False) -> None:
        """See to it that letters come to the queue of this gate; `again`: one of them did not.

        Declared once however many letters ask: the second of two declarations at the same moment is answered
        before a quorum queue can take messages, and the first letters would be refused.
        """
        if gate in self._held and not again:
            return
        task = self._making.get(gate)
        if task is None or task.done():
            task = self._making[gate] = asyncio.create_task(self._hold(gate))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._making.pop(gate, None)

    async def _hold(self, gate: str) -> None:
        # One that differs was declared without the argument, by a version that gave none.
        queue = Queue(name=held_name(gate), type="quorum", arguments=REFUSING)
        await open_delay(self._linked(), queue, as_it_is=True)
        self._held.add(gate)

    def holds(self, gate: str) -> bool:
        return gate in self._held

    async def repair(self) -> None:
        """Declare anew what is ours: somebody deleted it."""
        if self._repairing is None or self._repairing.done():
            self._repairing = asyncio.ensure_future(self._declare_ours())
        await asyncio.shield(self._repairing)

    async def look(self, origin: str) -> bool:
        """How the origin is now; False: it is not there."""
        # One channel for all looks; a refusal closes it, and the next look opens another.
        channel = self._looking
        if channel is None or channel.error is not None:
            channel = self._looking = await self._channel()
        try:
            told = await counts_on(channel, origin)
            state = OriginState(exists=True, consumers=told.consumers, ready=told.ready)
        except NotFound:
            state = OriginState(exists=False, consumers=0, ready=0)
        except ChannelClosed:
            return True  # not ours to know: no access, or exclusive; or closed by the look beside this
        self._looked_at[origin] = time.monotonic()
        if not state.exists:
            self._homes.pop(origin, None)  # what led to it is unbound, and may be deleted
        self._on_state(origin, state)
        return state.exists

    async def _find(self, origin: str) -> Home | None:
        if not await self.look(origin):
            return None  # and no way to it is declared
        now, home = time.monotonic(), self._homes.get(origin)
        if home is not None and not self._stale(origin, now):
            return home
        found = await self._bound(origin)
        if found is not None:
            if len(self._homes) >= KNOWN_MAX:
                self.forget()
            found = self._homes[origin] = home if found == home else found
            self._looked_at[origin] = self._bound_at[origin] = now
        return found

    async def _bound(self, origin: str) -> Home | None:
        name = return_exchange_name(origin)
        try:
            async with await self._channel() as channel:
                await channel.declare_exchange(name, "fanout")
                await channel.bind_queue(origin, name)
        except NotFound:
            return None
        except (AccessRefused, PreconditionFailed):
            return Home(origin=origin, exchange="") if await self._there(origin) else None
        return Home(origin=origin, exchange=name)

    async def _there(self, origin: str) -> bool:
        try:
            return await counts_of(await self._connection(), origin) is not None
        except ChannelClosed:
            return True  # it is there, and we may not know more

    async def _channel(self) -> Channel:
        return await (await self._connection()).channel()

    async def _connection(self) -> Connection:
        return await self._linked().connection("declare")

    def _linked(self) -> Link:
        if self._link is None:
            raise ConnectionLost("no connection to the broker")
        return self._link
