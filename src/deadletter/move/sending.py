"""Letters that are in no queue (of an archive, of the store), published safely: mandatory and confirmed.

Who has the letters (`Consignor`) gives them in portions, says how each is packed, and is told what became of
each one: it arrived, or it stayed and why. The next portion is asked for while the last one is under way;
how many letters and how many bytes are under way is bounded.

Nothing can be lost here: the letters have their home where they come from until somebody hears that they
arrived. What must not happen is that somebody does not know which did. One that was under way when the line
went dead is sent again and may be there twice; it is named (`Consignor.doubtful`). When the broker closes the
line because of a letter (it is too large, it may not be published), those under way are sent again one at a
time, and the one that does it alone is left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from deadletter.amqp.channel import Channel, ReturnedMessage, ignore
from deadletter.broker.session import Link
from deadletter.core.letter.message import RawMessage
from deadletter.errors import (
    ChannelClosed,
    ClosedByBroker,
    ConnectionForced,
    ConnectionLost,
    MessageError,
    NotFound,
    SendingRefused,
    TargetMissing,
    UsageError,
    WireError,
)
from deadletter.move.flights import Flights, Landing

IN_FLIGHT: Final = 500
IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024
CULPRITS_MAX: Final = 5
"""After so many letters one after the other that the broker closes the line for, it is not the letters."""
CONFIRM_S: Final = 60.0
_FRAMING_BYTES: Final = 20
_TURN: Final = 16
"""After so many publishes others get their turn: with 50, who asks a database for the next letters waited
for each of a dozen answers behind as many publishes."""
_KEYS: Final = 500
_FIRST: Final = 100
"""So many are under way at first, and after a letter stayed; more as they arrive."""

_T = TypeVar("_T")


class PackedLetter(NamedTuple):
    """A letter as it is published."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class Stayed(Enum):
    """Why a letter did not arrive."""

    UNROUTABLE = "unroutable"
    REFUSED = "refused"
    """The broker said no (`basic.nack`): a queue that is full."""
    UNFIT = "unfit"
    """It cannot be written as a message, or the broker closes the line for it."""


class Consignor(Protocol[_T]):
    """Whoever has letters to send. What is told is told inside the turn of the event loop that heard it."""

    async def on(self, link: Link) -> None:
        """Another line: find the ways anew."""

    async def more(self) -> Sequence[_T] | None:
        """The next letters, when they may go; None: there are no more. Called by one at a time."""

    def pack(self, one: _T, number: int, user: str) -> PackedLetter:
        """As it is published. `number` is never given twice; `user` is the connection's, if it is known.
        Raises MessageError when it cannot be read, UsageError when it cannot be written."""

    def number_of(self, returned: RawMessage) -> int | None:
        """Which publish a returned message is; None: it does not say."""

    def arrived(self, some: Sequence[_T]) -> None:
        """The broker confirmed them."""

    def stayed(self, one: _T, what: Stayed, why: str) -> None:
        """It is not there, for certain."""

    def doubtful(self, some: Sequence[_T]) -> None:
        """The line was lost before the broker answered; they are sent again and may be there twice."""


class _Flight(NamedTuple, Generic[_T]):
    one: _T
    packed: PackedLetter


class Sending(Generic[_T]):
    """`on` a link until there are no more letters; after a lost one go on with the next link."""

    def __init__(
        self, consignor: Consignor[_T], *, in_flight: int = IN_FLIGHT, ahead: int = IN_FLIGHT
    ) -> None:
        self.links: int = 0
        self._consignor = consignor
        self._in_flight = in_flight
        self._ahead = ahead
        """With fewer than this at hand the next portion is asked for."""
        self._at_hand: deque[_T] = deque()
        """Those that were given and not sent, and those whose fate is not known: these first."""
        self._asking: asyncio.Future[Sequence[_T] | None] | None = None
        self._ended = False
        self._stopped = False
        self._flights: Flights[_Flight[_T]] = Flights()
        self._air: dict[int, _Flight[_T]] = {}
        """The same by number of publish, for a return that has to be found among them."""
        self._bytes = 0
        self._most = min(_FIRST, in_flight)
        self._number_from = 0
        self._one_by_one = 0
        self._culprits = 0
        self._changed = asyncio.Event()

    @property
    def under_way(self) -> int:
        """How many are published and not answered."""
        return len(self._air)

    @property
    def unsent(self) -> list[_T]:
        """Those that were given, and of which nobody knows that they arrived or stayed."""
        return [*(flight.one for flight in self._air.values()), *self._at_hand]

    def stop(self) -> None:
        """Send no more, also not what is at hand; wait for the answers to what is under way."""
        self._stopped = True
        self._changed.set()

    async def recalled(self) -> list[_T]:
        """It was stopped: what was given and never published, once who is asked for letters has answered."""
        if (asking := self._asking) is not None:
            await asyncio.wait({asking})
            self._asking = None
            self._at_hand.extend(asking.result() or ())
        return list(self._at_hand)

    async def close(self) -> None:
        """Nobody sends any more: who is asked for letters need not answer. What was answered is `unsent`."""
        asking, self._asking = self._asking, None
        if asking is None:
            return
        asking.cancel()
        await asyncio.wait({asking})
        if not asking.cancelled() and asking.exception() is None:
            self._at_hand.extend(asking.result() or ())

    async def on(self, link: Link) -> None:
        """Until all is sent and answered. Raises when the line is lost, TargetMissing when the exchange is
        not there (any more), SendingRefused when the broker wants none of them."""
        self.links += 1
        if self._air:  # whoever ran it on the line before was cancelled
            self._crash(twice=True)
        await self._consignor.on(link)
        # With EXTERNAL the certificate names the user and we do not know the name.
        user = link.address.user if link.address.mechanism == "PLAIN" else ""
        while True:
            try:
                channel = await link.channel("publish")
                await channel.select_confirms()
                try:
                    await self._publish(channel, user)
                finally:
                    # What is still said here is about numbers that the next channel gives again.
                    channel.on_confirm, channel.on_return, channel.on_closed = ignore, ignore, ignore
                    self._number_from += channel.published
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

    # -- publishing --------------------------------------------------------------------------------------
    async def _publish(self, channel: Channel, user: str) -> None:
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        channel.on_closed = lambda _error: self._changed.set()
        connection, pack = channel.connection, self._consignor.pack
        begun: dict[tuple[str, str], bytes] = {}
        while True:
            await self._room(channel)
            await connection.ready()
            one = await self._next(channel)
            if one is None:
                break
            try:
                packed = pack(one, self._number_from + channel.published + 1, user)
                exchange, key, properties, body = packed
                frame = begun.get((exchange, key))
                if frame is None:
                    if len(begun) >= _KEYS:
                        begun.clear()
                    frame = begun[exchange, key] = channel.publishing(exchange, key, mandatory=True)
            except (MessageError, UsageError, UnicodeError) as error:
                kind = "read" if isinstance(error, MessageError) else "written"
                self._consignor.stayed(one, Stayed.UNFIT, f"it cannot be {kind}: {error}")
                continue
            most = connection.frame_max_bytes
            if len(properties) + _FRAMING_BYTES > most:
                why = f"its headers do not fit into a frame of {most} bytes"
                self._consignor.stayed(one, Stayed.UNFIT, why)
                continue
            try:
                number = channel.publish(frame, properties, body)
            except WireError:
                self._at_hand.appendleft(one)
                raise
            flight = _Flight(one, packed)
            self._flights.launch(number, flight)
            self._air[number] = flight
            self._bytes += len(body)
            if number % _TURN == 0:
                await asyncio.sleep(0)
        while self._air:
            await self._settled(channel)

    async def _next(self, channel: Channel) -> _T | None:
        while not self._stopped:
            if len(self._at_hand) < self._ahead and not self._ended:
                self._ask()
            if self._at_hand:
                return self._at_hand.popleft()
            if self._ended:
                return None
            await self._settled(channel, patient=not self._air)
        return None

    def _ask(self) -> None:
        """For the next portion, or take it where it is there."""
        if self._asking is not None and self._asking.done():
            asking, self._asking = self._asking, None
            portion = asking.result()
            if portion is None:
                self._ended = True
                return
            self._at_hand.extend(portion)
        if self._asking is None and len(self._at_hand) < self._ahead:
            self._asking = asyncio.ensure_future(self._consignor.more())
            self._asking.add_done_callback(lambda _asked: self._changed.set())

    async def _room(self, channel: Channel) -> None:
        """Until one more may be under way; one alone, while it is looked for who closed the line."""
        while self._air and (
            self._one_by_one > 0 or len(self._air) >= self._most or self._bytes >= IN_FLIGHT_BYTES
        ):
            await self._settled(channel)

    async def _settled(self, channel: Channel, *, patient: bool = False) -> None:
        """Until something has changed. `patient`: nothing is under way that the broker should answer."""
        if channel.error is not None:
            raise channel.error
        self._changed.clear()
        try:
            # A broker that blocks us says so, and then there is no hurry.
            hurry = not patient and not channel.connection.blocked_reason
            async with asyncio.timeout(CONFIRM_S if hurry else None):
                await self._changed.wait()
        except TimeoutError:
            if channel.connection.blocked_reason:
                return
            error = ConnectionLost(f"no confirm came within {CONFIRM_S:g} s")
            channel.connection.abort(error)
            raise error from None
        if channel.error is not None:
            raise channel.error

    # -- what the broker says ----------------------------------------------------------------------------
    def _on_confirm(self, number: int, multiple: bool, ok: bool) -> None:
        if multiple:
            numbers: list[int] = []
            for waiting in self._air:  # in the order of publishing
                if waiting > number:
                    break
                numbers.append(waiting)
        else:
            numbers = [number] if number in self._air else []
        landed = self._flights.land(number, multiple=multiple, ok=ok)
        safe: list[_T] = []
        for place, (flight, landing) in zip(numbers, landed, strict=True):
            del self._air[place]
            self._bytes -= len(flight.packed.body)
            if landing is Landing.SAFE:
                safe.append(flight.one)
            elif landing is Landing.UNROUTABLE:
                why = "no queue takes it there (unroutable)"
                self._consignor.stayed(flight.one, Stayed.UNROUTABLE, why)
            else:
                self._consignor.stayed(flight.one, Stayed.REFUSED, "the broker refused it (is it full?)")
        if len(safe) < len(landed):
            self._most = min(_FIRST, self._in_flight)
        if safe:
            self._culprits = 0
            self._most = min(self._most + len(safe), self._in_flight)
            self._consignor.arrived(safe)
        self._one_by_one = max(0, self._one_by_one - len(landed))
        self._changed.set()

    def _on_return(self, returned: ReturnedMessage) -> None:
        """It names no publish. Where the letter carries no mark of ours, equal ones go the same way."""
        number = self._consignor.number_of(returned.message)
        if number is not None and self._flights.returned(number - self._number_from):
            return
        told = returned.message
        for place, flight in self._air.items():
            if flight.packed[2:] == (told.properties, told.body) and self._flights.returned(place):
                return
        for place in self._air:  # changed on its way: then all of them are in doubt
            self._flights.returned(place)

    # -- losses ------------------------------------------------------------------------------------------
    def _crash(self, *, twice: bool) -> None:
        """The line is gone: all that was under way is sent again, first of all."""
        some = [flight.one for flight in self._air.values()]
        self._flights.crash()
        self._air.clear()
        self._bytes = 0
        if some and twice:
            self._consignor.doubtful(some)
        self._at_hand.extendleft(reversed(some))

    def _blame(self, error: ChannelClosed | ClosedByBroker) -> None:
        """The broker closed the line, and one of those under way is why."""
        suspects = len(self._air)
        self._crash(twice=suspects > 1)
        if isinstance(error, NotFound) or not suspects:
            refused = TargetMissing if isinstance(error, NotFound) else SendingRefused
            raise refused(f"the broker ends it: {error.code} {error.text}") from error
        if suspects > 1:
            self._one_by_one = suspects
            return
        culprit = self._at_hand.popleft()
        why = f"the broker does not accept it: {error.code} {error.text}"
        self._consignor.stayed(culprit, Stayed.UNFIT, why)
        self._one_by_one = max(0, self._one_by_one - 1)
        self._culprits += 1
        if self._culprits >= CULPRITS_MAX:
            raise SendingRefused(
                f"the broker refused {self._culprits} letters one after the other, the last with "
                f"{error.code} {error.text}"
            ) from error
