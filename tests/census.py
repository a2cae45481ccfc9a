"""Where every letter is: a count over all queues of a vhost, for tests whose claim is that nothing is lost.

The letters are taken out while they are counted, with our own client: what it cannot take it would not count,
and a letter that is not counted fails the test.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.amqp.handshake import connect
from deadletter.core import message, names
from deadletter.core.message import Message, View
from deadletter.core.table import Value

QUIET_S = 1.0


def letter(body: bytes, **properties: object) -> Message:
    """A persistent message; `headers=` and every other property as in `View`."""
    return Message(message.encode(View(**{"delivery_mode": 2, **properties})), body)  # type: ignore[arg-type]


def letters(prefix: str, count: int, **properties: object) -> list[Message]:
    made = letter(b"", **properties).properties
    return [Message(made, f"{prefix}-{number}".encode()) for number in range(count)]


def headers_of(delivery: Delivery) -> dict[str, Value]:
    return dict(message.view(delivery.message.properties).headers or {})


@dataclass(slots=True)
class Census:
    """What was found. `ids` are the ids of each body, `where` the queues it was in."""

    where: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ids: dict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    causes: Counter[str] = field(default_factory=Counter)
    deliveries: list[tuple[str, Delivery]] = field(default_factory=list)

    def lost(self, bodies: Iterable[bytes]) -> set[bytes]:
        return set(bodies) - self.where.keys()

    def copies(self) -> dict[bytes, Counter[str]]:
        """Bodies that were found more than once."""
        return {body: places for body, places in self.where.items() if places.total() > 1}

    def in_queue(self, queue: str) -> list[Delivery]:
        return [delivery for name, delivery in self.deliveries if name == queue]


async def count(vhost: Vhost, skip: Callable[[str], bool] = lambda _queue: False) -> Census:
    """Empty every queue of the vhost. What moves meanwhile (a level that expires) is found where it goes."""
    census = Census()
    connection = await connect(parse_addresses(vhost.url)[0], name="census")
    last = time.monotonic()
    try:
        channel = await connection.channel()
        queues = [q["name"] for q in await asyncio.to_thread(vhost.list, "queues") if not skip(q["name"])]

        def taker(queue: str) -> Callable[[Delivery], None]:
            def on_delivery(delivery: Delivery) -> None:
                nonlocal last
                last = time.monotonic()
                body = delivery.message.body
                headers = headers_of(delivery)
                census.where[body][queue] += 1
                census.deliveries.append((queue, delivery))
                if isinstance(found := headers.get(names.ID), str):
                    census.ids[body].add(found)
                if queue == names.PARKED:
                    census.causes[str(headers.get(names.CAUSE))] += 1
                channel.ack(delivery.tag)

            return on_delivery

        await channel.qos(2000)
        for queue in queues:
            await channel.consume(queue, taker(queue), lambda: None)
        while time.monotonic() - last < QUIET_S or await _left(vhost, queues):
            assert time.monotonic() - last < 60, "letters that cannot be taken"
            await asyncio.sleep(0.1)
    finally:
        await connection.close()
    return census


async def _left(vhost: Vhost, queues: list[str]) -> int:
    """What the broker still has in them, held letters included; its figures are up to five seconds old."""
    found = await asyncio.to_thread(vhost.list, "queues")
    return sum(int(q.get("messages_ready", 0)) for q in found if q["name"] in queues)
