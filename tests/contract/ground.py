"""What the contract is tested on: a broker in memory of some version, or the real one of this run.

The tests see only this: connections of our own client, a few things an administrator does, and time. Virtual
time makes the waiting free on a broker in memory, so both kinds run the very same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tests.brokers import Vhost, call, end_memory_alarm, raise_memory_alarm

from deadletter import Consumer
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import PublishOutcome, publish_all
from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View, encode, header_table, view
from deadletter.core.topology.rabbitmq_versions import Traits, traits_of
from deadletter.errors import ConnectionLost
from deadletter.testing.memory import MemoryBroker, settle

_T = TypeVar("_T")

PATIENCE_S = 60.0
STEP_S = 0.02
CALM_S = 0.3
"""After so long nothing more comes by itself."""


class Site(Protocol):
    """A broker, as an administrator has it in hand."""

    traits: Traits
    url: str
    api: str | None
    memory: MemoryBroker | None
    """In place of the broker that the URL names."""

    async def connect(self) -> Connection: ...

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, Value], priority: int) -> None: ...

    async def restart(self) -> None: ...

    async def block(self, *, on: bool) -> None: ...

    def total(self, queue: str) -> int:
        """Every message of a queue: ready, with consumers, and held for any other reason."""

    def queues(self) -> list[str]:
        """Looked at from the side: to ask a broker for a queue may keep it."""


class MemorySite:
    def __init__(self, version: str) -> None:
        self.broker = MemoryBroker(version)
        self.traits = self.broker.traits
        self.url: str = "amqp://broker.example"
        self.api: str | None = None
        self.memory: MemoryBroker | None = self.broker

    async def connect(self) -> Connection:
        return await self.broker.connect()

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, Value], priority: int) -> None:
        self.broker.set_policy(name, pattern, definition, priority=priority)

    async def restart(self) -> None:
        await self.broker.restart()

    async def block(self, *, on: bool) -> None:
        if on:
            self.broker.block()
        else:
            self.broker.unblock()

    def total(self, queue: str) -> int:
        broker = self.broker
        return broker.depth(queue) + broker.unacked(queue) + broker.held(queue)

    def queues(self) -> list[str]:
        return list(self.broker.queues)


class RealSite:
    def __init__(self, vhost: Vhost, version: str) -> None:
        self.traits = traits_of(version)
        self.url: str = vhost.url
        self.api: str | None = vhost.api
        self.memory: MemoryBroker | None = None
        self._vhost = vhost

    async def connect(self) -> Connection:
        return await connect(parse_addresses(self._vhost.url)[0])

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, Value], priority: int) -> None:
        self._vhost.put("policies", name, pattern=pattern, definition=definition, priority=priority)

    async def restart(self) -> None:
        await asyncio.to_thread(self._vhost.broker.restart)

    async def block(self, *, on: bool) -> None:
        await asyncio.to_thread(raise_memory_alarm if on else end_memory_alarm, self._vhost.broker)

    def total(self, queue: str) -> int:
        found = call(self._vhost.broker, "GET", "queues", self._vhost.name, queue)
        return int(found.get("messages", -1))

    def queues(self) -> list[str]:
        return [str(queue["name"]) for queue in self._vhost.list("queues")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A delivery as a test compares it: everything in it but the tag and the times of day."""

    body: bytes
    redelivered: bool
    exchange: str
    key: str
    headers: Mapping[str, object]
    expiration: str | None


def seen(delivery: Delivery) -> Seen:
    shown = view(delivery.message.properties)
    return Seen(
        body=delivery.message.body,
        redelivered=delivery.redelivered,
        exchange=delivery.exchange.decode(),
        key=delivery.routing_key.decode(),
        headers=timeless(shown.headers or {}),
        expiration=shown.expiration,
    )


def timeless(headers: Mapping[str, Value]) -> dict[str, object]:
    """Headers without the times of the deaths in them."""
    plain: dict[str, object] = dict(headers)
    deaths = plain.get("x-death")
    if isinstance(deaths, list):
        plain["x-death"] = [{name: value for name, value in d.items() if name != "time"} for d in deaths]
    return plain


def counts(delivery: Delivery) -> tuple[bool, object, object]:
    """What a delivery says about earlier ones: redelivered, delivery count, acquired count."""
    headers = view(delivery.message.properties).headers or {}
    return delivery.redelivered, headers.get("x-delivery-count"), headers.get("x-acquired-count")


def names_of(delivery: Delivery) -> list[bytes]:
    return [entry[0] for entry in field_table.walk(header_table(delivery.message.properties))]


class Ground:
    """One test's hand on a broker."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.traits = site.traits
        self._connections: list[Connection] = []

    async def connect(self) -> Connection:
        connection = await self.site.connect()
        self._connections.append(connection)
        return connection

    async def channel(self, connection: Connection | None = None) -> Channel:
        """A channel with confirms, on the first connection that is still open or a new one."""
        if connection is None:
            alive = [known for known in self._connections if not known.closed.done()]
            connection = alive[0] if alive else await self.connect()
        channel = await connection.channel()
        await channel.select_confirms()
        return channel

    def application(self, **options: Any) -> Consumer:
        """An application's consumer, on this broker."""
        return Consumer(self.site.url, api=self.site.api, **options)

    @asynccontextmanager
    async def serving(self, app: Consumer) -> AsyncIterator[None]:
        """It takes messages within; whatever ended it is raised."""
        task = asyncio.create_task(app.serve(self.site.memory))
        try:
            await self.until(lambda: task.done() or (app.ready is not None and app.ready.is_set()))
            if task.done():
                task.result()
            yield
        finally:
            app.stop()
            await asyncio.wait({task}, timeout=PATIENCE_S)
        task.result()

    async def leave(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def declare(
        self, queue: str, kind: str = "classic", arguments: Mapping[str, Value] | None = None
    ) -> str:
        channel = await self.channel()
        await channel.declare_queue(queue, arguments={"x-queue-type": kind, **(arguments or {})})
        await channel.close()
        return queue

    async def put(
        self,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        mandatory: bool = True,
        headers: Mapping[str, Value] | None = None,
        expiration: str | None = None,
        priority: int | None = None,
        delivery_mode: int | None = None,
        user_id: str | None = None,
        channel: Channel | None = None,
    ) -> PublishOutcome:
        """Publish, and wait for the broker's word on each."""
        properties = encode(
            View(
                headers=headers,
                expiration=expiration,
                priority=priority,
                delivery_mode=delivery_mode,
                user_id=user_id,
            )
        )
        own = channel or await self.channel()
        messages = [RawMessage(properties, body) for body in bodies]
        outcome = await publish_all(own, exchange, key, messages, mandatory=mandatory)
        if channel is None:
            await own.close()
        return outcome

    async def take(self, channel: Channel, queue: str) -> Delivery:
        """The next message, as soon as there is one."""
        for _ in range(int(PATIENCE_S / STEP_S)):
            delivery = await channel.get(queue)
            if delivery is not None:
                return delivery
            await asyncio.sleep(STEP_S)
        raise AssertionError(f"no message came into {queue} within {PATIENCE_S:g} s")

    async def none_comes(self, channel: Channel, queue: str, seconds: float = CALM_S) -> None:
        await asyncio.sleep(seconds)
        delivery = await channel.get(queue)
        assert delivery is None, f"{delivery} came into {queue}"

    async def drain(self, queue: str) -> list[Delivery]:
        """Everything that is ready, acked."""
        channel = await self.channel()
        found: list[Delivery] = []
        while (delivery := await channel.get(queue)) is not None:
            found.append(delivery)
        channel.ack(0, multiple=True)
        await channel.close()
        return found

    async def until(self, what: Callable[[], _T]) -> _T:
        """Wait until something is so."""
        for _ in range(int(PATIENCE_S / STEP_S)):
            if found := what():
                return found
            await asyncio.sleep(STEP_S)
        raise AssertionError("what was waited for did not come")

    async def depth(self, queue: str) -> int:
        channel = await self.channel()
        found = (await channel.declare_queue(queue, passive=True)).message_count
        await channel.close()
        return found

    async def depth_becomes(self, queue: str, wanted: int) -> None:
        found = await self.depth(queue)
        for _ in range(int(PATIENCE_S / STEP_S)):
            if found == wanted:
                return
            await asyncio.sleep(STEP_S)
            found = await self.depth(queue)
        raise AssertionError(f"{queue} holds {found} ready messages, not {wanted}")

    async def total_becomes(self, queue: str, wanted: int) -> None:
        """A real broker's own figures are up to five seconds late."""
        found = self.site.total(queue)
        for _ in range(int(PATIENCE_S / STEP_S / 10)):
            if found == wanted:
                return
            await asyncio.sleep(STEP_S * 10)
            found = self.site.total(queue)
        raise AssertionError(f"{queue} holds {found} messages in all, not {wanted}")

    async def gone(self, queue: str) -> None:
        """Wait until there is no such queue."""
        for _ in range(int(PATIENCE_S / STEP_S / 10)):
            if queue not in self.site.queues():
                return
            await asyncio.sleep(STEP_S * 10)
        raise AssertionError(f"{queue} is still there")

    async def calm(self) -> None:
        """Until what was said without waiting for an answer has been heard."""
        await asyncio.sleep(CALM_S)
        await settle()

    async def vanish(self, connection: Connection) -> None:
        """The client is gone, without a word."""
        connection.abort(ConnectionLost("the test hangs up"))
        await self.calm()
