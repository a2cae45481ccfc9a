"""A message as a handler sees it: the body, how often it was tried, why it failed before, how it came.

Most handlers take the decoded body alone. One that wants more has a parameter of this type. The verbs are
for those who want to say themselves what becomes of it. They are carried out when the handler ends, and after
one of them it does not matter how it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from deadletter.consumer.outcomes import Discard, Park, RetryLater
from deadletter.core.deciding.deaths import Death, History, read_history
from deadletter.core.letter import header_values, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.errors import UsageError


class Message:
    """Given to handlers. Headers and deaths are read when they are asked for."""

    __slots__ = ("_closed", "_decided", "_history", "_letter", "attempt", "begun_before", "queue")

    def __init__(self, letter: Letter, attempt: int) -> None:
        self.queue: str = letter.source
        self.attempt: int = attempt
        """How often it was sent back before; 0 the first time."""
        self.begun_before: bool = False
        """Whether an earlier run of the handler began it and never came to an end: `idempotent` tells."""
        self._letter = letter
        self._history: History | None = None
        self._decided: Exception | bool = False
        self._closed = False

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
    def content_type(self) -> str | None:
        return self._letter.view.content_type

    @property
    def routing_key(self) -> str:
        """The one it first came by, also after retries that changed it."""
        return header_values.name(self.headers.get(names.ORIGIN_ROUTING_KEY)) or self._letter.routing_key

    @property
    def exchange(self) -> str:
        """The one it first came by."""
        found = header_values.name(self.headers.get(names.ORIGIN_EXCHANGE))
        return self._letter.exchange if found is None else found

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

    # -- verbs -------------------------------------------------------------------------------------------
    async def ack(self) -> None:
        """It is done, whatever the handler does next."""
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
        return self._decided
