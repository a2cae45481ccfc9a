"""Housekeeping: what is ours, empty and unused goes after a while, and never while a letter may need it.

**Delays that were asked for, and queues of held letters** (`broker.asked_delays`). One that was empty at
every look for a while is closed: no letter can come to it any more. When it was empty at every look since
then, it is deleted, under its lease, if it is still closed. What a level holds and cannot pass on counts: it
is in the broker's figures though it is not ready. Between closing and deleting there is time for figures that
are seconds old, and for letters that were routed to the queue and are not in it yet. One that is not bound at
all goes the same way: its opening was cut short, or a version made it that reached it by its name.

**Ways back** (`deadletter.return.<queue>`). One whose queue is gone has no binding. It is deleted by the
broker itself under the condition that it still has none. Publishers know a way for a minute at most
(`return_exchanges.HOME_S`) and find it anew, declaring it if need be; so `after_s` is longer than that.

Levels that a policy or a schedule names stay: they are few, and reached by their name, also by applications
that nobody here knows of. One instance does this at a time, the one with the lease. What it observed the next
does not know, and counts anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from deadletter.amqp.connection import Connection
from deadletter.broker.asked_delays import closing_key, lay_exchange, lease_for
from deadletter.broker.lease import Lease
from deadletter.broker.management import Management
from deadletter.broker.queue_counts import counts_on
from deadletter.core.layouts.naming import ASKED, HELD, RETURN, return_exchange_name
from deadletter.errors import ChannelClosed, WireError

LEASE: Final = "housekeeping"
EVERY_S: Final = 60.0
AFTER_S: Final = 3600.0
CLOSED_S: Final = 120.0
"""So long a closed queue must be empty before it is deleted, and at two looks at least: the broker's figures
are up to a minute old where somebody made it tell them rarely."""
AT_ONCE: Final = 100
"""Queues deleted together."""
_UNPLANNED: Final = (f"{ASKED}.", HELD)
_LAG_S: Final = 1.0
"""In a cluster a node may see a binding a moment after another has made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What went in one round."""

    delays: int = 0
    held: int = 0
    """Queues of held letters."""
    ways: int = 0
    letters: int = 0
    """Letters that went with a queue; there should never be one."""

    def __bool__(self) -> bool:
        return bool(self.delays or self.held or self.ways or self.letters)


class Since:
    """Names for which something holds, and for how long, by what was seen at every look."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._looks: dict[str, int] = {}

    def see(self, names: Iterable[str]) -> None:
        """It holds for these now, and for no others."""
        now, held = self._clock(), set(names)
        self._began = {name: self._began.get(name, now) for name in held}
        self._looks = {name: self._looks.get(name, 0) + 1 for name in held}

    def longer_than(self, seconds: float) -> list[str]:
        """Those for which it holds so long, as two looks or more have seen."""
        now = self._clock()
        return [
            name for name, began in self._began.items() if now - began >= seconds and self._looks[name] > 1
        ]


class Housekeeper:
    """Deletes unused queues and ways back, on a connection of its own; `round` it now and then."""

    def __init__(
        self,
        connection: Connection,
        asked: Management,
        *,
        after_s: float = AFTER_S,
        closed_s: float = CLOSED_S,
        on_lease: Callable[[bool], None] = lambda _held: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._asked = asked
        self._after_s = after_s
        self._closed_s = min(closed_s, after_s)
        self._on_lease = on_lease
        self._lease: Lease | None = None
        self._idle = Since(clock)
        self._closed = Since(clock)
        self._unbound = Since(clock)

    @property
    def leads(self) -> bool:
        """Whether this instance holds the lease."""
        return self._lease is not None

    async def round(self) -> Tidied:
        """Look, and let go what may go. Raises ManagementRefused, or ConnectionLost with the lease."""
        if self._lease is None or not self._lease.held:
            self._lease = await Lease.take(self._connection, LEASE)
            if self._lease is None:
                return Tidied()
            self._on_lease(True)
        bound: list[Mapping[str, Any]] = list(await self._asked.get("bindings"))
        letters = {
            str(item["name"]): item.get("messages")
            for item in (await self._asked.every("queues", "name,messages")).items
        }
        opened, closed = _asked_for(bound)
        opened |= {name for name in letters if name.startswith(_UNPLANNED)} - closed
        self._idle.see(name for name in opened if letters.get(name) == 0)
        self._closed.see(name for name in closed - opened if letters.get(name) == 0)
        for name in self._idle.longer_than(self._after_s):
            await self._close(name)
        gone = await self._delete(self._closed.longer_than(self._closed_s)[:AT_ONCE])
        held = sum(name.startswith(HELD) for name in gone)
        ways = await self._delete_ways(bound, letters)
        return Tidied(delays=len(gone) - held, held=held, ways=ways, letters=sum(gone.values()))

    # -- delays ------------------------------------------------------------------------------------------
    async def _close(self, queue: str) -> None:
        """From here on publishers get their letters back, and open it again."""
        async with await self._connection.channel() as channel:
            with suppress(ChannelClosed):  # somebody deleted it
                await lay_exchange(channel)
                await channel.bind_queue(queue, ASKED, closing_key(queue))
                await channel.unbind_queue(queue, ASKED, queue)

    async def _delete(self, queues: list[str]) -> dict[str, int]:
        """Those that went, and how many letters with each."""
        leases = [(queue, await Lease.take(self._connection, lease_for(queue))) for queue in queues]
        gone: dict[str, int] = {}
        try:
            if leases:
                await asyncio.sleep(_LAG_S)
                opened, closed = _asked_for(await self._asked.get("bindings"))
                for queue, lease in leases:
                    if lease is not None and queue in closed and queue not in opened:
                        with suppress(ChannelClosed):  # somebody deleted it, or it is not ours to delete
                            went = await self._delete_empty(queue)
                            if went is not None:
                                gone[queue] = went
        finally:
            with suppress(WireError):
                for _, lease in leases:
                    if lease is not None:
                        await lease.release()
        return gone

    async def _delete_empty(self, queue: str) -> int | None:
        """How many letters went with it (one may come between two commands); None: the queue stays."""
        async with await self._connection.channel() as channel:
            found = await counts_on(channel, queue)
            if found.ready or found.consumers:
                return None
            return await channel.delete_queue(queue)

    # -- ways back ---------------------------------------------------------------------------------------
    async def _delete_ways(self, bound: Iterable[Mapping[str, Any]], queues: Iterable[str]) -> int:
        leading = {str(item["source"]) for item in bound}
        wanted = {return_exchange_name(queue) for queue in queues}
        exchanges = {str(item["name"]) for item in await self._asked.get("exchanges")}
        self._unbound.see(name for name in exchanges - leading - wanted if name.startswith(RETURN))
        gone = 0
        for name in self._unbound.longer_than(self._after_s):
            async with await self._connection.channel() as channel:
                with suppress(ChannelClosed):  # bound again just now, or not ours to delete
                    await channel.delete_exchange(name, if_unused=True)
                    gone += 1
        return gone


def _asked_for(bound: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """The queues that nobody planned: those that are open, those that are closing."""
    opened: set[str] = set()
    closed: set[str] = set()
    for item in bound:
        if item["source"] == ASKED and item["destination_type"] == "queue":
            queue, key = str(item["destination"]), item["routing_key"]
            if key == queue:
                opened.add(queue)
            elif key == closing_key(queue):
                closed.add(queue)
    return opened, closed
