"""What `app.publish` and `message.publish` share: a message is made, and sent; or kept until a commit.

Inside a handler's `Transaction` nothing is published before the commit: what is rolled back must not have
been told to anybody. Until then it waits in `Pending`, which the transaction writes down where it can.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Unpack

from deadletter.consumer.publishing.publications import Publication, PublishOptions, publication
from deadletter.consumer.publishing.publisher import Publisher

_ID_BYTES: Final = 16


class Pending:
    """Publishes that wait for the commit of the transaction in which they were asked for."""

    def __init__(self) -> None:
        self.publications: list[Publication] = []
        self.open: bool = True
        """Whether the transaction is under way: a task that outlives it publishes at once."""


_PENDING: ContextVar[Pending | None] = ContextVar("deadletter_pending", default=None)


@contextmanager
def kept_until_commit() -> Iterator[Pending]:
    """What is published within is kept; whoever commits sends it afterwards."""
    pending = Pending()
    token = _PENDING.set(pending)
    try:
        yield pending
    finally:
        pending.open = False
        _PENDING.reset(token)


class AppMail:
    """Of one running consumer. `service` is what its messages say they come from."""

    def __init__(self, publisher: Publisher, *, service: str) -> None:
        self._publisher = publisher
        self._app_id = service or None

    async def send(self, body: object, *, exchange: str, key: str, **options: Unpack[PublishOptions]) -> str:
        """Publish it, and return its message id once a queue has it, or it waits for a commit."""
        message_id = options.get("message_id") or self._publisher.new_id()
        options["message_id"] = message_id
        options.setdefault("app_id", self._app_id)
        made = publication(body, exchange=exchange, key=key, options=options)
        pending = _PENDING.get()
        if pending is not None and pending.open:
            pending.publications.append(made)
        else:
            await self._publisher.publish(made)
        return message_id

    async def send_all(self, publications: Sequence[Publication]) -> None:
        """Publish them in this order; raises what went wrong with the first that did not arrive."""
        sent = [asyncio.ensure_future(self._publisher.publish(one)) for one in publications]
        try:
            await asyncio.gather(*sent, return_exceptions=True)
        finally:
            for one in sent:
                one.cancel()
        for one in sent:
            one.result()


def derived_id(*told: str) -> str:
    """The same for the same, whoever asks and whenever."""
    return hashlib.blake2b(
        "\0".join(told).encode("utf-8", "surrogateescape"), digest_size=_ID_BYTES
    ).hexdigest()
