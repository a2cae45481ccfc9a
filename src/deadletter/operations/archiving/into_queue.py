"""Letters of an archive into a queue, or through an exchange, of a broker: mandatory and confirmed.

Each goes as it was, property by property (`core.letter.restored`). Into a queue it goes by the fanout
exchange that leads to that queue alone, so that it keeps its routing key and no `CC` copies it; where we may
not declare or bind, by the queue's name through the default exchange.

The archive stays what it is, so nothing can be lost here; what must not happen is that somebody does not know
which letters arrived. What was confirmed is counted by number; a letter that was under way when the line went
dead is sent again and may be there twice, and that is said. When the broker closes the line because of a
letter (it is too large, it may not be published), those under way are sent again one at a time, and the one
that does it alone is left out and named.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel, ReturnedMessage, ignore
from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link, SessionEvent, supervise
from deadletter.core.letter.archive_format import ArchivedLetter
from deadletter.core.letter.key_bytes import as_text
from deadletter.core.letter.restored import Restored, restored
from deadletter.errors import (
    ArchiveError,
    ChannelClosed,
    ClosedByBroker,
    ConnectionForced,
    ConnectionLost,
    MessageError,
    NotFound,
    QueueMissing,
    UsageError,
    WireError,
)
from deadletter.move.flights import Flights, Landing
from deadletter.operations.archiving.left_over import left_text

IN_FLIGHT: Final = 500
IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024
CULPRITS_MAX: Final = 5
"""After so many letters one after the other that the broker closes the line for, it is not the letters."""
CONFIRM_S: Final = 60.0
_FRAMING_BYTES: Final = 20


class Target(NamedTuple):
    """A queue by name, or an exchange and (None: each letter's own) routing key."""

    queue: str | None = None
    exchange: str = ""
    key: str | None = None


@dataclass(slots=True, kw_only=True)
class Restoration:
    """What became of the letters of an archive."""

    arrived: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    """By number: why they are not there."""
    left: str = ""
    """The numbers of all that are not there; empty: all are."""
    maybe_twice: int = 0
    reconnects: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    expiring: int = 0
    transient: int = 0
    by_name: bool = False
    """They went by the queue's name: their routing keys are that name now."""
    stopped: bool = False


class _Way(NamedTuple):
    exchange: str
    key: str | None
    may_copy: bool


class _Flight(NamedTuple):
    one: ArchivedLetter
    sent: Restored


class QueueImport:
    """One import. `stop` ends it early and cleanly; `done` tells what became of the letters."""

    def __init__(
        self,
        addresses: Sequence[Address],
        target: Target,
        letters: Iterator[ArchivedLetter],
        *,
        on_event: Callable[[SessionEvent], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.done: Final = Restoration()
        self._addresses = addresses
        self._target = target
        self._letters = letters
        self._on_event = on_event
        self._on_progress = on_progress
        self._again: list[ArchivedLetter] = []
        """Those whose fate is not known, to be sent first."""
        self._flights: Flights[_Flight] = Flights()
        self._air: dict[int, _Flight] = {}
        """The same by number of publish, for a return that has to be found among them."""
        self._bytes = 0
        self._one_by_one = 0
        self._culprits = 0
        self._top = 0
        self._links = 0
        self._ended = False
        self._stop = False
        self._changed = asyncio.Event()

    def stop(self) -> None:
        self._stop = True
        self._changed.set()

    async def run(self) -> Restoration:
        """Raises when it cannot go on; `done` is right then too."""
        try:
            await supervise(self._addresses, self._work, name="dlq import", on_event=self._on_event)
        finally:
            missing = {*self.done.failed, *(one.number for one in self._again)}
            missing |= {flight.one.number for flight in self._air.values()}
            self.done.left = left_text(missing, None if self._ended else self._top)
            self.done.reconnects = max(0, self._links - 1)
        return self.done

    async def _work(self, link: Link) -> None:
        self._links += 1
        way = await self._find_way(link)
        # With EXTERNAL the certificate names the user and we do not know the name.
        user = link.address.user if link.address.mechanism == "PLAIN" else ""
        while True:
            channel: Channel | None = None
            try:
                channel = await link.channel("publish")
                await channel.select_confirms()
                await self._publish(channel, way, user)
                await channel.close()
            except (ChannelClosed, ClosedByBroker) as error:
                if isinstance(error, ConnectionForced):
                    self._crash(twice=True)
                    raise
                self._blame(error)
            except WireError:
                self._crash(twice=True)
                raise
            else:
                return

    async def _find_way(self, link: Link) -> _Way:
        target = self._target
        if target.queue is None:
            try:
                async with await link.channel() as channel:
                    if target.exchange:
                        await channel.declare_exchange(target.exchange, "direct", passive=True)
            except NotFound as error:
                raise UsageError(
                    f"there is no exchange {target.exchange!r} in vhost {link.address.vhost!r}"
                ) from error
            return _Way(target.exchange, target.key, may_copy=True)
        ways = WaysBack(_nothing, ignore)
        ways.renew(link)
        home = await ways.find(target.queue)
        if home is None:
            raise QueueMissing(target.queue, link.address.vhost)
        if home.exchange:
            return _Way(home.exchange, None, may_copy=False)
        self.done.by_name = True
        return _Way("", target.queue, may_copy=True)

    # -- publishing --------------------------------------------------------------------------------------
    async def _publish(self, channel: Channel, way: _Way, user: str) -> None:
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        channel.on_closed = lambda _error: self._changed.set()
        begun: dict[str, bytes] = {}
        while True:
            await self._room(channel)
            await channel.connection.ready()
            if (one := self._next()) is None:
                break
            try:
                sent = restored(one.message, user=user, may_copy=way.may_copy)
            except MessageError as error:
                self.done.failed[one.number] = f"it cannot be read: {error}"
                continue
            properties = sent.message.properties
            most = channel.connection.frame_max_bytes
            if len(properties) + _FRAMING_BYTES > most:
                self.done.failed[one.number] = f"its headers do not fit into a frame of {most} bytes"
                continue
            key = as_text(one.came_by.routing_key) if way.key is None else way.key
            frame = begun.get(key) or channel.publishing(way.exchange, key, mandatory=True)
            if len(begun) < IN_FLIGHT:
                begun[key] = frame
            try:
                number = channel.publish(frame, properties, sent.message.body)
            except WireError:
                self._again.insert(0, one)
                raise
            flight = _Flight(one, sent)
            self._flights.launch(number, flight)
            self._air[number] = flight
            self._bytes += len(sent.message.body)
            if number % 50 == 0:
                await asyncio.sleep(0)
        while self._air:
            await self._settled(channel)

    def _next(self) -> ArchivedLetter | None:
        if self._stop:
            return None
        if self._again:
            return self._again.pop(0)
        one = next(self._letters, None)
        if one is None:
            self._ended = True
        else:
            self._top = one.number
        return one

    async def _room(self, channel: Channel) -> None:
        """Until one more may be under way; one alone, while it is looked for who closed the line."""
        while self._air and (
            self._one_by_one > 0 or len(self._air) >= IN_FLIGHT or self._bytes >= IN_FLIGHT_BYTES
        ):
            await self._settled(channel)

    async def _settled(self, channel: Channel) -> None:
        """Until the broker has said something."""
        if channel.error is not None:
            raise channel.error
        self._changed.clear()
        try:
            # A broker that blocks us says so, and then there is no hurry.
            async with asyncio.timeout(None if channel.connection.blocked_reason else CONFIRM_S):
                await self._changed.wait()
        except TimeoutError:
            if channel.connection.blocked_reason:
                return
            error = ConnectionLost(f"no confirm came within {CONFIRM_S:g} s")
            channel.connection.abort(error)
            raise error from None
        if channel.error is not None:
            raise channel.error

    def _on_confirm(self, number: int, multiple: bool, ok: bool) -> None:
        numbers = [n for n in self._air if n <= number] if multiple else [number]
        for (flight, landing), place in zip(
            self._flights.land(number, multiple=multiple, ok=ok), numbers, strict=False
        ):
            del self._air[place]
            self._bytes -= len(flight.sent.message.body)
            self._one_by_one = max(0, self._one_by_one - 1)
            if landing is Landing.SAFE:
                self._arrived(flight)
            else:
                self._refused(flight.one.number, landing)
        self._changed.set()

    def _on_return(self, returned: ReturnedMessage) -> None:
        """It names no publish, and the letter carries no mark of ours: equal ones go the same way."""
        for number, flight in self._air.items():
            if flight.sent.message == returned.message and self._flights.returned(number):
                return
        for number in self._air:  # changed on its way: then all of them are in doubt
            self._flights.returned(number)

    def _arrived(self, flight: _Flight) -> None:
        self._culprits = 0
        self.done.arrived += 1
        self.done.set_aside.update(flight.sent.set_aside)
        self.done.expiring += flight.sent.expires
        self.done.transient += flight.sent.transient
        self._on_progress(self.done.arrived)

    def _refused(self, number: int, landing: Landing) -> None:
        """One that no queue takes will not be the last: the others stay in the archive."""
        unroutable = landing is Landing.UNROUTABLE
        why = "no queue takes it there (unroutable)" if unroutable else "the broker refused it (is it full?)"
        self.done.failed[number] = why
        self._stop = True

    # -- losses ------------------------------------------------------------------------------------------
    def _crash(self, *, twice: bool) -> None:
        """The line is gone: all that was under way is sent again."""
        some = list(self._air.values())
        self._flights.crash()
        self._air.clear()
        self._bytes = 0
        self.done.maybe_twice += len(some) if twice else 0
        self._again = [flight.one for flight in some] + self._again

    def _blame(self, error: ChannelClosed | ClosedByBroker) -> None:
        """The broker closed the line, and one of those under way is why."""
        suspects = [flight.one.number for flight in self._air.values()]
        self._crash(twice=len(suspects) > 1)
        if isinstance(error, NotFound) or not suspects:
            raise ArchiveError(f"the broker ends it: {error.code} {error.text}") from error
        if len(suspects) > 1:
            self._one_by_one = len(suspects)
            return
        self._again.pop(0)
        self.done.failed[suspects[0]] = f"the broker does not accept it: {error.code} {error.text}"
        self._culprits += 1
        if self._culprits >= CULPRITS_MAX:
            raise ArchiveError(
                f"the broker refused {self._culprits} letters one after the other, the last with "
                f"{error.code} {error.text}; nothing was lost, they are in the archive"
            ) from error


async def _nothing() -> None:
    return
