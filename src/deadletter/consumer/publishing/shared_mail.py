"""The publisher of an application, shared by all who publish at a time: `serve`, and each `publishing()`.

The first who comes opens it and the last who leaves closes it, in whatever order they end: a request that is
over must not take the publisher away from the consumer, or from the next request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from deadletter.amqp.address import Address
from deadletter.amqp.handshake import connect
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.consumer.publishing.publisher import DeclaredExchange, Publisher
from deadletter.errors import UsageError

if TYPE_CHECKING:
    from deadletter.testing.memory import MemoryBroker


class SharedMail:
    """Of one application. `exchanges` are read when something is published."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str,
        service: str,
        exchanges: Mapping[str, DeclaredExchange],
    ) -> None:
        self._addresses = addresses
        self._name = name
        self._service = service
        self._exchanges = exchanges
        self._users = 0
        self._publisher: Publisher | None = None
        self._broker: MemoryBroker | None = None
        """Where it publishes, while it is open; None: where the URL says."""
        self.mail: AppMail | None = None
        """There while somebody needs it."""

    @asynccontextmanager
    async def opened(self, broker: MemoryBroker | None, *, anywhere: bool = False) -> AsyncIterator[AppMail]:
        """For as long as one of its users lasts. `anywhere`: where the others publish is right, too.

        Raises UsageError when it is open to another broker: messages would go where nobody expects them.
        """
        if self.mail is None:
            self._publisher = Publisher(
                self._addresses if broker is None else [broker.address],
                name=self._name,
                dial=connect if broker is None else broker.connect,
                exchanges=self._exchanges,
            )
            self._broker = broker
            self.mail = AppMail(self._publisher, service=self._service)
        elif broker is not self._broker and not anywhere:
            raise UsageError(
                f"publishing: expected {_told(self._broker)}, where this consumer publishes already, got "
                f"{_told(broker, self._broker)}; give serve(…) and each publishing(…) the same broker"
            )
        self._users += 1
        try:
            yield self.mail
        finally:
            self._users -= 1
            if not self._users:
                await self._close()

    async def _close(self) -> None:
        publisher, self._publisher = self._publisher, None
        self.mail = self._broker = None
        if publisher is not None:
            await publisher.close()


def _told(broker: MemoryBroker | None, other: MemoryBroker | None = None) -> str:
    if broker is None:
        return "the broker of the URL"
    return "a memory broker" if other is None else "another memory broker"
