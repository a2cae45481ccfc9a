"""Where the asyncio adapters publish: a connection of our own, one channel, confirmed, returns matched.

Why not a channel of the framework: aiormq, below aio-pika and FastStream, matches a returned message to its
publish by message id. Two with the same id under way swap their results, and the message that no queue took
is reported as delivered. A retry has the message id of the first try, so this is not rare. Here each publish
carries its own number, and properties go as bytes.

A second connection is right for another reason too: a broker short of memory stops reading from whoever
publishes, and would not see the acks there either.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Final

from deadletter.adapters.packing import pack
from deadletter.adapters.rulings import Parcel
from deadletter.amqp.address import Address, parse_addresses
from deadletter.amqp.channel import Channel, ReturnedMessage
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.core.letter.envelope import move_number
from deadletter.errors import ConnectionLost, MoveFailed, Unreachable, WireError
from deadletter.move.flights import Flights, Landing

CONFIRM_S: Final = 30.0
"""Longer without an answer, and it is published once more; its first copy may arrive nevertheless."""


class Outbox:
    """Opened when it is first needed, and again after it was lost."""

    def __init__(self, url: str, *, name: str, confirm_timeout_s: float = CONFIRM_S) -> None:
        self._addresses = parse_addresses(url)
        self._name = name or "deadletter adapter"
        self._confirm_timeout_s = confirm_timeout_s
        self._line: _Line | None = None
        self._opening = asyncio.Lock()

    async def send(self, parcel: Parcel) -> Landing:
        """Publish it and wait for the broker's word. Raises WireError or MoveFailed: its fate is open."""
        line = await self._open()
        try:
            async with asyncio.timeout(self._confirm_timeout_s):
                await line.ready()
        except TimeoutError:  # nothing was published, so the line stays: another would be blocked as well
            raise MoveFailed(
                f"the broker took no publish for {self._confirm_timeout_s:g} s; is it blocked by an alarm?"
            ) from None
        try:
            async with asyncio.timeout(self._confirm_timeout_s):
                return await line.send(parcel)
        except TimeoutError:
            self._line = None
            await line.close()
            raise MoveFailed(
                f"the broker did not confirm a publish within {self._confirm_timeout_s:g} s; "
                "is it blocked by an alarm?"
            ) from None

    async def close(self) -> None:
        async with self._opening:
            line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _open(self) -> _Line:
        async with self._opening:
            if self._line is None or self._line.lost:
                stale, self._line = self._line, None
                if stale is not None:
                    await stale.close()
                self._line = await self._connect()
            return self._line

    async def _connect(self) -> _Line:
        failures: list[WireError] = []
        for address in self._addresses:
            try:
                connection = await connect(address, name=f"{self._name}: publish")
            except (Unreachable, ConnectionLost) as error:
                failures.append(error)
                continue
            try:
                channel = await connection.channel()
                await channel.select_confirms()
            except BaseException:  # a framework that ends cancels its callbacks, also here
                connection.abort(ConnectionLost("it was not needed any more"))
                raise
            return _Line(connection, channel, address)
        raise failures[0] if len(failures) == 1 else Unreachable("; ".join(map(str, failures)))


class _Line:
    """One channel, and what is under way on it."""

    def __init__(self, connection: Connection, channel: Channel, address: Address) -> None:
        self._connection = connection
        self._channel = channel
        self._user = address.user if address.mechanism == "PLAIN" else ""
        self._run = secrets.token_hex(8)
        self._flights: Flights[asyncio.Future[Landing]] = Flights()
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        channel.on_closed = self._on_closed

    @property
    def lost(self) -> bool:
        return self._channel.error is not None

    async def ready(self) -> None:
        await self._connection.ready()

    async def send(self, parcel: Parcel) -> Landing:
        packed = pack(
            parcel,
            run=self._run,
            number=self._channel.published + 1,
            user=self._user,
            frame_max_bytes=self._connection.frame_max_bytes,
            now_ms=int(time.time() * 1000),
        )
        publishing = self._channel.publishing(packed.exchange, packed.routing_key, mandatory=True)
        number = self._channel.publish(publishing, packed.message.properties, packed.message.body)
        answer: asyncio.Future[Landing] = asyncio.get_running_loop().create_future()
        self._flights.launch(number, answer)
        return await answer

    async def close(self) -> None:
        with suppress(WireError):  # it is lost already, and that is what was wanted
            await self._connection.close()

    def _on_confirm(self, number: int, multiple: bool, ok: bool) -> None:
        for answer, outcome in self._flights.land(number, multiple=multiple, ok=ok):
            if not answer.done():
                answer.set_result(outcome)

    def _on_return(self, returned: ReturnedMessage) -> None:
        number = move_number(returned.message.properties, self._run)
        if number is None or not self._flights.returned(number):
            self._fail(MoveFailed("the broker returned a message that is not among those under way"))

    def _on_closed(self, error: WireError) -> None:
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        for answer in self._flights.crash():
            if not answer.done():
                answer.set_exception(error)
