"""An application beside the service: it lets letters die and notes when they come back.

Its queue is a quorum queue with a dead-letter queue of its own, which the service watches. Every time is
taken in this process: the moment a letter is rejected, and the moment it is delivered again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from bench.errors import BenchError
from bench.management import Vhost
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.handshake import connect
from deadletter.core.letter.message import RawMessage, View, encode

ORIGIN: Final = "bench.origin"
DLQ: Final = "bench.origin.dlq"
EXCHANGE: Final = "bench.events"
NUMBER_BYTES: Final = 8
_PREFETCH: Final = 500
_PROPERTIES: Final = encode(
    View(delivery_mode=2, content_type="application/json", app_id="bench", headers={"tenant": "acme"})
)


class Application:
    """Consumes `ORIGIN`. `on_letter(number, routing key)` says whether the letter is handled or dies."""

    def __init__(
        self, publishing: Channel, consuming: Channel, on_letter: Callable[[int, str], bool]
    ) -> None:
        self._publishing = publishing
        self._consuming = consuming
        self._on_letter = on_letter
        self.came = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, vhost: Vhost, on_letter: Callable[[int, str], bool]) -> AsyncIterator[Application]:
        connection = await connect(parse_addresses(vhost.url)[0], name="bench: application")
        try:
            publishing, consuming = await connection.channel(), await connection.channel()
            quorum = {"x-queue-type": "quorum"}
            await publishing.declare_queue(DLQ, arguments=quorum)
            dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DLQ}
            await publishing.declare_queue(ORIGIN, arguments={**quorum, **dead})
            await publishing.declare_exchange(EXCHANGE, "topic")
            await publishing.bind_queue(ORIGIN, EXCHANGE, "#")
            await consuming.qos(_PREFETCH)
            application = cls(publishing, consuming, on_letter)
            await consuming.consume(ORIGIN, application._on_delivery, lambda: None)
            yield application
        finally:
            await connection.close()

    def publish(self, numbers: Iterable[int], routing_key: str, *, body_bytes: int) -> None:
        """Letters with these numbers; as quickly as the connection takes them."""
        publishing = self._publishing.publishing(EXCHANGE, routing_key, mandatory=False)
        for number in numbers:
            body = number.to_bytes(NUMBER_BYTES, "big").ljust(body_bytes, b"x")
            self._publishing.publish(publishing, _PROPERTIES, body)

    async def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something holds; it is looked at when a letter came, and now and then."""
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > until:
                raise BenchError(f"waited {seconds:.0f} s in vain for {what}")
            self.came.clear()
            try:
                async with asyncio.timeout(0.2):
                    await self.came.wait()
            except TimeoutError:
                continue

    def _on_delivery(self, delivery: Delivery) -> None:
        message: RawMessage = delivery.message
        number = int.from_bytes(message.body[:NUMBER_BYTES], "big")
        if self._on_letter(number, delivery.routing_key.decode()):
            self._consuming.ack(delivery.tag)
        else:
            self._consuming.reject(delivery.tag, requeue=False)
        self.came.set()
