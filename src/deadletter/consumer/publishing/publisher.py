"""Publishing what an application says: confirmed, one answer per publish, told apart where it went wrong.

A connection of its own, opened by the first publish and again after it was lost: a broker short of memory
stops reading from whoever publishes, and consumers must not feel that. A channel per exchange: an exchange
that is not there, or not for us, closes the channel of those who publish to it and of nobody else.

A return names no publish. It is matched by what came back: address, message id and body. Two publishes that
are alike in all of it are the same message, and which of them came back makes no difference.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, assert_never

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel, ReturnedMessage, ignore
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.broker.session import RETRYABLE, Dial
from deadletter.consumer.publishing.publications import Publication
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.message import view
from deadletter.errors import (
    ChannelClosed,
    ConnectionLost,
    DeadletterError,
    MaybePublished,
    MoveFailed,
    NotPublished,
    PublishError,
    PublishRefused,
    Unroutable,
    UsageError,
    WireError,
)
from deadletter.move.flights import Flights, Landing

PATIENCE_S: Final = 30.0
"""How long a publish waits for a broker that is away or blocked, and how long for its word."""
PAUSE_S: Final = 0.2
POLL_S: Final = 0.01
WAYS_MAX: Final = 4_096
"""How many keys are remembered; each is a few hundred bytes."""
CHANNELS_MAX: Final = 64
_HEADER_BYTES: Final = 20
"""What stands beside the properties in their frame."""


class DeclaredExchange(Protocol):
    """What is to be known of an exchange that is declared."""

    @property
    def type(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Value]: ...


_NONE: Final[Mapping[str, DeclaredExchange]] = {}


class Publisher:
    """Belongs to the running loop. After `close` nothing is published any more."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str,
        dial: Dial = connect,
        exchanges: Mapping[str, DeclaredExchange] = _NONE,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._addresses = addresses
        self._name = f"{name}: application"
        self._dial = dial
        self._exchanges = exchanges
        """Those of the application: declared before something is published to them."""
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._lines: dict[str, _Line] = {}
        """By exchange."""
        self._opening = asyncio.Lock()
        self._closed = False
        self._run = secrets.token_hex(8)
        self._made = 0

    def new_id(self) -> str:
        """A message id that nobody else has."""
        self._made += 1
        return f"{self._run}-{self._made:x}"

    async def publish(self, publication: Publication) -> None:
        """Until a queue has it. Raises a PublishError."""
        line = self._lines.get(publication.exchange)
        if line is None or line.gone or line.channel.connection.congested:
            line = await self._in_time(publication)
        await line.send(publication)

    async def close(self) -> None:
        """Say goodbye, after a moment for those that are under way."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                for line in list(self._lines.values()):
                    await line.quiet()
        async with self._opening:
            connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # -- lines -------------------------------------------------------------------------------------------
    async def _in_time(self, publication: Publication) -> _Line:
        """A line that takes publishes now."""
        failure: WireError | None = None
        patience = asyncio.timeout(self._patience_s)
        try:
            async with patience:
                while True:
                    try:
                        line = await self._line(publication.exchange)
                        await line.channel.connection.ready()
                        if not line.gone and not line.channel.connection.congested:
                            return line
                    except RETRYABLE as error:
                        failure = error
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError as error:
            if not patience.expired():
                raise
            why = str(failure) if failure is not None else "the broker takes no publishes; is there an alarm?"
            raise _error(
                NotPublished,
                publication,
                f"nothing was published within {self._patience_s:g} s: {why}; publish it again later",
            ) from (failure or error)
        except WireError as error:  # a refusal: login, vhost, certificate
            raise _error(NotPublished, publication, f"nothing was published: {error}") from error

    async def _line(self, exchange: str) -> _Line:
        async with self._opening:  # many may ask at once, and one opens it for all of them
            if self._closed:
                raise UsageError("expected publish before the end of the consumer, got one after it")
            line = self._lines.get(exchange)
            if line is None or line.gone:
                connection = await self._open()
                await self._make_room()
                channel = await connection.channel()
                if (own := self._exchanges.get(exchange)) is not None:
                    await channel.declare_exchange(exchange, own.type, arguments=own.arguments)
                await channel.select_confirms()
                line = self._lines[exchange] = _Line(channel, self._patience_s)
            return line

    async def _open(self) -> Connection:
        if self._connection is not None and not self._connection.closed.done():
            return self._connection
        failures: list[WireError] = []
        for address in self._addresses:
            try:
                self._connection = await self._dial(address, name=self._name)
            except RETRYABLE as error:
                failures.append(error)
                continue
            return self._connection
        raise failures[0] if len(failures) == 1 else ConnectionLost("; ".join(map(str, failures)))

    async def _make_room(self) -> None:
        """An application may name exchanges without an end; channels have one."""
        if len(self._lines) < CHANNELS_MAX:
            return
        for exchange, line in list(self._lines.items()):
            if line.idle:
                del self._lines[exchange]
                await line.channel.close()
                return


class _Flight(NamedTuple):
    publication: Publication
    answer: asyncio.Future[None]
    at: float


class _Line:
    """One channel, for one exchange, and what is under way on it."""

    def __init__(self, channel: Channel, patience_s: float) -> None:
        self.channel = channel
        self.gone: bool = False
        """Whether nothing can be published here any more."""
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._flights: Flights[_Flight] = Flights()
        self._ways: dict[tuple[str, bool], bytes] = {}
        """What a publish begins with, by its key."""
        self._worked = False
        self._watch: asyncio.TimerHandle | None = None
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        channel.on_closed = self._on_closed

    @property
    def idle(self) -> bool:
        return not len(self._flights)

    async def quiet(self) -> None:
        """Until nothing is under way."""
        while not self.idle:  # noqa: ASYNC110 -- once, at the end, for a moment
            await asyncio.sleep(POLL_S)

    def send(self, publication: Publication) -> asyncio.Future[None]:
        """Publish it. What comes back is done when a queue has it, and raises a PublishError otherwise."""
        channel = self.channel
        if len(publication.properties) + _HEADER_BYTES > channel.connection.frame_max_bytes:
            raise UsageError(
                f"publish: expected headers that fit into a frame of {channel.connection.frame_max_bytes} "
                f"bytes, got {len(publication.properties)} bytes of properties"
            )
        try:
            number = channel.publish(self._way(publication), publication.properties, publication.body)
        except WireError as error:
            raise _error(NotPublished, publication, f"nothing was published: {error}") from error
        answer: asyncio.Future[None] = self._loop.create_future()
        self._flights.launch(number, _Flight(publication, answer, self._loop.time()))
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s, self._look)
        return answer

    def _way(self, publication: Publication) -> bytes:
        key = (publication.routing_key, publication.mandatory)
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            found = self._ways[key] = self.channel.publishing(
                publication.exchange, publication.routing_key, mandatory=publication.mandatory
            )
        return found

    def _on_confirm(self, number: int, multiple: bool, ok: bool) -> None:
        self._worked = True
        for (publication, answer, _), outcome in self._flights.land(number, multiple=multiple, ok=ok):
            if answer.done():  # nobody waits for it any more
                continue
            match outcome:
                case Landing.SAFE:
                    answer.set_result(None)
                case Landing.UNROUTABLE:
                    answer.set_exception(_error(Unroutable, publication, _UNROUTABLE))
                case Landing.REFUSED:
                    answer.set_exception(_error(PublishRefused, publication, _REFUSED))
                case _:
                    assert_never(outcome)

    def _on_return(self, returned: ReturnedMessage) -> None:
        message_id = view(returned.message.properties).message_id
        for number, (publication, _, _) in self._flights.waiting():
            if (
                publication.message_id == message_id
                and as_bytes(publication.routing_key) == returned.routing_key
                and publication.body == returned.message.body
            ):
                self._flights.returned(number)
                return
        self._end(MoveFailed("the broker returned a message that is not among those under way"))

    def _on_closed(self, error: WireError) -> None:
        self.gone = True
        flights = self._flights.crash()
        # The broker goes through them in order and says which kind it closes for, not which one. Where none
        # came through before, or it is alone, there is no doubt.
        refused = isinstance(error, ChannelClosed) and (not self._worked or len(flights) == 1)
        for publication, answer, _ in flights:
            if not answer.done():
                kind = PublishRefused if refused else MaybePublished
                answer.set_exception(_error(kind, publication, _why(error, refused=refused)))

    def _look(self) -> None:
        """Whether the broker's word is overdue."""
        self._watch = None
        oldest = next(self._flights.waiting(), None)
        if oldest is None or self.gone:
            return
        left_s = oldest[1].at + self._patience_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look)
            return
        self._end(
            ConnectionLost(f"no word of the broker's within {self._patience_s:g} s; is there an alarm?")
        )

    def _end(self, error: DeadletterError) -> None:
        """Nobody knows any more what became of those under way; a word that comes late must not be theirs."""
        self.gone = True
        self.channel.on_confirm = self.channel.on_return = self.channel.on_closed = ignore
        self.channel.abandon()
        for publication, answer, _ in self._flights.crash():
            if not answer.done():
                answer.set_exception(_error(MaybePublished, publication, _why(error, refused=False)))


_UNROUTABLE: Final = (
    "no queue takes it, and it is nowhere; bind a queue there (bind=[…] of @app.queue), look at the key, or "
    "say mandatory=False where nobody need hear it"
)
_REFUSED: Final = (
    "the broker refused it, and it is nowhere: a queue behind it is full or cannot be written; publish it "
    "again later"
)
_ADVICE: Final = {
    403: "this user may not write there: grant it, or publish elsewhere",
    404: "there is no such exchange: declare it (app.exchange(…)), or look at its name",
    406: "the broker does not take such a message, most often for its size",
}


def _why(error: DeadletterError, *, refused: bool) -> str:
    code = error.code if isinstance(error, ChannelClosed) else 0
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    if refused:
        return f"it was refused, and is nowhere: {error}{advice}"
    return (
        f"it may have been published, or not: {error}{advice}; publish it again with this message_id, and "
        "whoever takes it can tell a copy"
    )


def _error(kind: type[PublishError], publication: Publication, text: str) -> PublishError:
    return kind(
        text,
        exchange=publication.exchange,
        routing_key=publication.routing_key,
        message_id=publication.message_id,
    )
