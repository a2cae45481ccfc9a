"""A message as a handler sees it: the body, how often it was tried, why it failed before, how it came.

Most handlers take the decoded body alone. One that wants more has a parameter of this type. The verbs are
for those who want to say themselves what becomes of it. They are carried out when the handler ends, and after
one of them it does not matter how it ends; but `ack` and `discard` stand or fall with what has to be
committed or sent after the handler (`at_stake`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Unpack

from deadletter.consumer.outcomes import Discard, Park, RetryLater
from deadletter.consumer.publishing.mailing import AppMail, derived_id
from deadletter.consumer.publishing.publications import PublishOptions
from deadletter.core.deciding.deaths import Death, History, read_history
from deadletter.core.letter import header_values, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.errors import Unroutable, UsageError

EXPIRATION_DIGITS: Final = 10
"""RabbitMQ takes no longer one than 32 bits of milliseconds."""
DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
"""Whoever asks so hears the answer on its own channel, without a queue."""


class Message:
    """Given to handlers. Headers and deaths are read when they are asked for."""

    __slots__ = (
        "_closed",
        "_decided",
        "_history",
        "_letter",
        "_mail",
        "_published",
        "_stakes",
        "attempt",
        "begun_before",
        "queue",
    )

    def __init__(self, letter: Letter, attempt: int, mail: AppMail | None = None) -> None:
        self.queue: str = letter.source
        self.attempt: int = attempt
        """How often it was sent back before; 0 the first time."""
        self.begun_before: bool = False
        """Whether an earlier run of the handler began it and never came to an end: `idempotent` tells."""
        self._letter = letter
        self._mail = mail
        self._published = 0
        self._history: History | None = None
        self._decided: Exception | bool = False
        self._closed = False
        self._stakes = 0

    @property
    def body(self) -> bytes:
        return self._letter.body

    @property
    def headers(self) -> Mapping[str, Value]:
        return self._letter.headers

    @property
    def id(self) -> str:
        """The `deadletter-id` it carries or would get; the same for both copies that a crash may leave."""
        return self._letter.id

    @property
    def message_id(self) -> str | None:
        """The publisher's own id."""
        return self._letter.view.message_id

    @property
    def correlation_id(self) -> str | None:
        """What it belongs to, or what it answers, as its publisher says."""
        return self._letter.view.correlation_id

    @property
    def reply_to(self) -> str | None:
        """The queue in which its publisher waits for an answer: see `reply`."""
        return self._letter.view.reply_to

    @property
    def type(self) -> str | None:
        """What kind of message it is, as its publisher says."""
        return self._letter.view.type

    @property
    def content_type(self) -> str | None:
        return self._letter.view.content_type

    @property
    def app_id(self) -> str | None:
        return self._letter.view.app_id

    @property
    def priority(self) -> int | None:
        return self._letter.view.priority

    @property
    def timestamp(self) -> datetime | None:
        """When it was published, as its publisher says; None also where that is no date of this calendar."""
        found = self._letter.view.timestamp
        return found if isinstance(found, datetime) else None

    @property
    def expiration(self) -> timedelta | None:
        """How long it may wait in a queue. A broker takes that off a letter that dies: a retry has none."""
        found = self._letter.view.expiration
        if found is None or not (found.isascii() and found.isdecimal()) or len(found) > EXPIRATION_DIGITS:
            return None
        return timedelta(milliseconds=int(found))

    @property
    def routing_key(self) -> str:
        """The one it first came by, also after retries that changed it."""
        noted = header_values.name(self.headers.get(names.ORIGIN_ROUTING_KEY))
        if not noted and (first := self._first_here()) is not None and first.routing_keys:
            return first.routing_keys[0]
        return noted or self._letter.routing_key

    @property
    def exchange(self) -> str:
        """The one it first came by."""
        noted = header_values.name(self.headers.get(names.ORIGIN_EXCHANGE))
        if noted is None and (first := self._first_here()) is not None and first.exchange is not None:
            return first.exchange
        return self._letter.exchange if noted is None else noted

    def _first_here(self) -> Death | None:
        """Where the broker itself sends a letter round nobody notes how it came, but its first death here."""
        if not self._letter.circling:
            return None
        return next((one for one in reversed(self.deaths) if one.queue == self.queue), None)

    @property
    def redelivered(self) -> bool:
        return self._letter.redelivered

    @property
    def deaths(self) -> tuple[Death, ...]:
        """Where and why it died before, newest first."""
        return self._read().all

    @property
    def age(self) -> timedelta | None:
        """Since it first died; None when it never did."""
        first = self._read().first_at
        return None if first is None else datetime.now(UTC) - first

    def _read(self) -> History:
        if self._history is None:
            self._history = read_history(self.headers)
        return self._history

    # -- publishing --------------------------------------------------------------------------------------
    async def publish(
        self, body: object, *, exchange: str = "", key: str = "", **options: Unpack[PublishOptions]
    ) -> str:
        """As `app.publish`, in the name of this message: it has its `correlation_id`, and an id of its own.

        Where this message has a `message_id`, the new one's is made of that, of where it goes and of how many
        were published before: a handler that runs again publishes under the same ids, and whoever takes them
        can tell a copy. What it is not to be taken for a copy of is given an id.
        """
        self._published += 1
        options.setdefault("correlation_id", self.correlation_id)
        if not options.get("message_id") and self.message_id:
            options["message_id"] = derived_id(
                self.queue, self.message_id, exchange, key, str(self._published)
            )
        return await self._post().send(body, exchange=exchange, key=key, **options)

    async def reply(self, body: object, **options: Unpack[PublishOptions]) -> bool:
        """Answer it: to the queue in its `reply_to`, with its `correlation_id`, or its id where it has none.

        False: nobody waits there any more. UsageError: it wants no answer.
        """
        queue = self.reply_to
        if not queue:
            raise UsageError(
                "reply: expected a message with reply_to, got one without: its publisher waits for no "
                "answer; look at message.reply_to first"
            )
        options.setdefault("correlation_id", self.correlation_id or self.message_id)
        if queue.startswith(DIRECT_REPLY):  # there is no such queue, and so a broker would send it back
            options.setdefault("mandatory", False)
        try:
            await self.publish(body, key=queue, **options)
        except Unroutable:
            return False
        return True

    def _post(self) -> AppMail:
        if self._mail is None:
            raise UsageError("expected publish in a handler of a consumer that serves, got one elsewhere")
        return self._mail

    # -- verbs -------------------------------------------------------------------------------------------
    async def ack(self) -> None:
        """It is done, whatever the handler does next, once what must be committed after it is committed."""
        self._decide(True)

    async def retry(self, after: float | timedelta | None = None, why: str = "") -> None:
        """Again later: after so many seconds, or when the queue's back-off says."""
        self._decide(RetryLater(after, why))

    async def park(self, why: str) -> None:
        """For a person."""
        self._decide(Park(why))

    async def discard(self, why: str = "") -> None:
        """Away with it."""
        self._decide(Discard(why))

    def _decide(self, decided: Exception | bool) -> None:
        if self._closed:
            raise UsageError(
                "expected ack, retry, park or discard before the handler ends, got one after it: what became "
                "of the message is settled"
            )
        if self._decided is not False:
            raise UsageError("expected one of ack, retry, park or discard once per message, got a second one")
        self._decided = decided

    @property
    def decided(self) -> Exception | bool:
        """What a verb said: True for ack, an exception for the others, False when none was used."""
        return self._decided

    def close(self) -> Exception | bool:
        """The handler has ended: no verb counts any more. Returns what one of them said before."""
        self._closed = True
        if self._stakes:
            self.take_back()
        return self._decided

    @contextmanager
    def at_stake(self) -> Iterator[None]:
        """`ack` and `discard` hold only if this is left well: a commit, and what is sent after it, say."""
        self._stakes += 1
        try:
            yield
        except BaseException:
            self.take_back()
            raise
        finally:
            self._stakes -= 1

    def take_back(self) -> None:
        """It is not done, although a verb said so. That it is to be retried or parked stands."""
        if self._decided is True or isinstance(self._decided, Discard):
            self._decided = False
