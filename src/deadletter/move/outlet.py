"""One outlet: the channel a passage publishes on, and the account of what is under way there.

Each publish carries its number in a header of ours, and a returned message is matched by it: a return names
no publish, confirms come out of order, and message ids repeat. The outcome of a publish is known when its
confirm comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from deadletter.amqp.channel import Channel, Delivery, ReturnedMessage, ignore
from deadletter.amqp.connection import Connection
from deadletter.core.letter.envelope import EnvelopeRoute, ExchangeKey, letter_id, move_number
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.property_build import PropertyBuild
from deadletter.core.letter.wrapping import came_by as first_came_by
from deadletter.core.letter.wrapping import unwrap, wrap
from deadletter.errors import MessageError, MoveFailed, UsageError
from deadletter.move.flights import Flights, Landing
from deadletter.move.intake import Intake
from deadletter.move.verdict import Send, Wrap

WAYS_MAX: Final = 4_096
"""How many different ways are remembered; each is a few hundred bytes."""


class Cargo(NamedTuple):
    """Where a publish came from, and what it was."""

    intake: Intake
    delivery: Delivery | None
    """None when nobody wants to think again about a letter that did not arrive: bodies are large."""
    tag: int
    properties: bytes
    """As it was published."""
    verdict: Send | Wrap
    tries: int
    kept_bytes: int = 0
    """Of the delivery's body: to sum this up is quicker than to go and see each of them again."""


class Outlet:
    """Made with `open`. `number_from` continues the numbers of the passages before."""

    __slots__ = (
        "_channel",
        "_connection",
        "_flights",
        "_last",
        "_number_from",
        "_on_lost",
        "_on_outcome",
        "_run",
        "_source",
        "_user",
        "_ways",
        "kept_bytes",
    )

    def __init__(
        self,
        connection: Connection,
        channel: Channel,
        *,
        run: str,
        source: str,
        user: str,
        number_from: int,
        on_outcome: Callable[[list[tuple[Cargo, Landing]]], None],
        on_lost: Callable[[Exception], None],
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._run = run
        self._source = source
        self._user = user
        self._number_from = number_from
        self._on_outcome = on_outcome
        self._on_lost = on_lost
        self._flights: Flights[Cargo] = Flights()
        self.kept_bytes: int = 0
        """Bodies that are kept until their publish is answered."""
        self._last: tuple[Send, bytes, EnvelopeRoute] | None = None
        self._ways: dict[int, tuple[Send, bytes, EnvelopeRoute]] = {}
        """By the identity of a Send, which is kept alive here so that no other can have it."""
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        channel.on_closed = on_lost

    @classmethod
    async def open(
        cls,
        connection: Connection,
        *,
        run: str,
        source: str,
        user: str,
        number_from: int,
        on_outcome: Callable[[list[tuple[Cargo, Landing]]], None],
        on_lost: Callable[[Exception], None],
    ) -> Outlet:
        channel = await connection.channel()
        await channel.select_confirms()
        return cls(
            connection,
            channel,
            run=run,
            source=source,
            user=user,
            number_from=number_from,
            on_outcome=on_outcome,
            on_lost=on_lost,
        )

    @property
    def under_way(self) -> int:
        return len(self._flights)

    @property
    def oldest(self) -> int | None:
        """The number of the publish that waits longest."""
        return self._flights.oldest

    @property
    def published(self) -> int:
        return self._channel.published

    @property
    def lost(self) -> bool:
        return self._channel.error is not None

    def send(
        self,
        intake: Intake,
        delivery: Delivery,
        verdict: Send,
        came_by: ExchangeKey,
        *,
        more: bytes = b"",
        tries: int = 0,
        keep: bool = False,
        build: PropertyBuild | None = None,
    ) -> str | None:
        """Publish a letter; returns why it cannot go, in which case nothing was published. `build`: of its
        properties, where that is known."""
        if self._last is None or self._last[0] is not verdict:
            try:
                self._last = self._ways.get(id(verdict)) or self._way(verdict)
            except (UnicodeError, UsageError, MessageError) as error:
                # Such a name came with the letter itself: AMQP takes any bytes for a routing key.
                return f"what it was to be sent with cannot be written: {error}"
        _, publishing, route = self._last
        channel, message = self._channel, delivery.message
        try:
            if verdict.unwrap and (inside := unwrap(message)) is not None:
                came_by, message, build = first_came_by(message) or came_by, inside, None
            properties = route.properties(
                message,
                came_by=came_by,
                number=self._number_from + channel.published + 1,
                more=more,
                build=build,
            )
        except MessageError as error:
            return f"it cannot be read: {error}"
        # A frame above the maximum would close the connection and take the neighbours with it.
        if len(properties) + 20 > self._connection.frame_max_bytes:
            return f"its headers do not fit into a frame of {self._connection.frame_max_bytes} bytes"
        number = channel.publish(publishing, properties, message.body)
        if keep:
            size = len(delivery.message.body)
            self.kept_bytes += size
            cargo = Cargo(intake, delivery, delivery.tag, properties, verdict, tries, size)
        else:
            cargo = Cargo(intake, None, delivery.tag, properties, verdict, tries)
        self._flights.launch(number, cargo)
        return None

    def send_wrapped(self, intake: Intake, delivery: Delivery, verdict: Wrap, *, tries: int) -> None:
        """Publish a letter inside another message."""
        number = self._number_from + self._channel.published + 1
        wrapped = wrap(
            delivery.message,
            source=self._source,
            came_by=ExchangeKey(delivery.exchange, delivery.routing_key),
            move=f"{self._run}-{number}",
            cause=verdict.cause,
            why=verdict.why,
            at_ms=verdict.at_ms,
        )
        publishing = self._channel.publishing(verdict.exchange, verdict.routing_key, mandatory=True)
        number = self._channel.publish(publishing, wrapped.properties, wrapped.body)
        size = len(delivery.message.body)
        self.kept_bytes += size
        cargo = Cargo(intake, delivery, delivery.tag, wrapped.properties, verdict, tries, size)
        self._flights.launch(number, cargo)

    def _way(self, verdict: Send) -> tuple[Send, bytes, EnvelopeRoute]:
        """What is the same for every letter that goes this way."""
        publishing = self._channel.publishing(verdict.exchange, verdict.routing_key, mandatory=True)
        route = EnvelopeRoute(
            run=self._run,
            source=self._source,
            user=self._user,
            target=ExchangeKey(verdict.exchange.encode(), as_bytes(verdict.routing_key)),
            deaths=verdict.deaths,
            leg=verdict.leg,
            anew=verdict.anew,
            circling=verdict.circling,
            add=verdict.headers,
        )
        if len(self._ways) >= WAYS_MAX:
            self._ways.clear()
        way = self._ways[id(verdict)] = (verdict, publishing, route)
        return way

    def _on_confirm(self, number: int, multiple: bool, ok: bool) -> None:
        landed = self._flights.land(number, multiple=multiple, ok=ok)
        if self.kept_bytes:
            self.kept_bytes -= sum([cargo.kept_bytes for cargo, _ in landed])
        self._on_outcome(landed)

    def _on_return(self, returned: ReturnedMessage) -> None:
        number = move_number(returned.message.properties, self._run)
        if number is None or not self._flights.returned(number - self._number_from):
            self._on_lost(MoveFailed("the broker returned a message that is not among those under way"))

    def crash(self) -> list[str]:
        """The line is dead: the ids of all that was under way, fate unknown."""
        return [
            id_of(
                cargo.delivery.message if cargo.delivery else RawMessage(cargo.properties, b""), self._source
            )
            for cargo in self._flights.crash()
        ]

    async def close(self) -> None:
        self._channel.on_closed = ignore
        if self._connection.congested and self._channel.error is None:
            # Nobody reads there: an answer would come when the alarm is over, and then nobody wants it.
            self._channel.on_confirm, self._channel.on_return = ignore, ignore
            self._channel.abandon()
        else:
            await self._channel.close()


def id_of(message: RawMessage, source: str) -> str:
    """The id of a letter for a report, whatever state its bytes are in."""
    try:
        return letter_id(message, source=source)
    except MessageError:
        return "unreadable"
