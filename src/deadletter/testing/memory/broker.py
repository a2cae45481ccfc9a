"""A RabbitMQ in memory: for tests that must be fast, repeatable, and able to break things at will.

    broker = MemoryBroker(version="4.3.6")
    connection = await broker.connect(name="a test")       # our own client, on a line without a network
    tally = await Courier([], ...).on(broker.link())       # or anything else that takes a link

It plays one vhost of one RabbitMQ version, as far as our client speaks to it: exchanges, classic and quorum
queues, TTL, length limits, dead-lettering, delivery limits, confirms, returns, policies. The contract suite
(`tests/contract`) runs the same tests here and on real brokers; what it does not test, do not rely on.

Faults come on demand: `cut` a connection, `refuse_publishes` of a queue, `block` publishers, `restart`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from deadletter.amqp.address import Address
from deadletter.amqp.connection import Connection
from deadletter.broker.session import Link
from deadletter.core.letter import field_table, message
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.rabbitmq_versions import OLDEST, Traits, traits_of, version_of
from deadletter.core.topology.vhost import Queue, Topology, topology
from deadletter.errors import QueueMissing, Unreachable, UsageError
from deadletter.testing.memory.clock import Clock, LoopClock, settle
from deadletter.testing.memory.connections.peer import Peer
from deadletter.testing.memory.contents.carriage import Carriage
from deadletter.testing.memory.contents.exchange_routing import route
from deadletter.testing.memory.contents.items import QueuedCopy
from deadletter.testing.memory.contents.queues import MemoryQueue
from deadletter.testing.memory.contents.shapes import Shapes
from deadletter.testing.memory.transport import MemoryTransport

NEWEST: Final = "4.3.6"
FRAME_MAX_BYTES: Final = 131_072
CHANNEL_MAX: Final = 2_047


class MemoryConnection(Connection):
    """Our own client's connection, with a memory broker at the other end."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop, name: str) -> None:
        super().__init__(address, loop)
        self.name = name


class MemoryLink(Link):
    """A link whose connections go to a memory broker."""


class MemoryBroker:
    """One vhost of one broker. Make it inside a coroutine: it lives in the running event loop."""

    def __init__(
        self,
        version: str = NEWEST,
        *,
        clock: Clock | None = None,
        vhost: str = "/",
        scramble: int | None = None,
    ) -> None:
        self.traits: Traits = traits_of(_played(version))
        self.clock: Clock = LoopClock() if clock is None else clock
        self.address: Address = Address(host="memory", vhost=vhost)
        self.dice: random.Random | None = None if scramble is None else random.Random(scramble)
        """Confirms of what came together go out in this order; None: as they came."""
        self.blocked_reason: str | None = None
        self.down: bool = False
        self._peers: dict[MemoryConnection, Peer] = {}
        self.shapes: Shapes = Shapes(self, vhost)
        self._carriage = Carriage(self.clock, self.traits, self.route)

    # -- coming and going --------------------------------------------------------------------------------
    async def connect(self, address: Address | None = None, *, name: str = "test") -> MemoryConnection:
        """A connection; raises Unreachable while the broker is stopped. Anything else but the user of an
        address is ignored: there is one broker."""
        address = address or self.address
        await asyncio.sleep(0)
        if self.down:
            raise Unreachable(f"cannot reach {address}: the memory broker is stopped")
        loop = asyncio.get_running_loop()
        connection = MemoryConnection(address, loop, name)
        transport = MemoryTransport(connection, loop)
        peer = Peer(self, transport, name=name, user=address.user, frame_max_bytes=FRAME_MAX_BYTES)
        transport.join(peer)
        connection.connection_made(transport)
        connection.server_properties = {"product": "RabbitMQ", "version": self.traits.version}
        connection.frame_max_bytes = FRAME_MAX_BYTES
        connection.channel_max = CHANNEL_MAX
        self._peers[connection] = peer
        return connection

    def link(self, name: str = "test") -> MemoryLink:
        """What `Courier.on` and the lines of the service take."""
        return MemoryLink(self.address, name, self.connect)

    @property
    def connections(self) -> tuple[MemoryConnection, ...]:
        """Those that are open."""
        return tuple(self._peers)

    def forget(self, peer: Peer) -> None:
        """A connection has ended: its exclusive queues go with it."""
        for connection in [open_ for open_, known in self._peers.items() if known is peer]:
            del self._peers[connection]
        for name in [queue.name for queue in self.shapes.queues.values() if queue.owner is peer]:
            self.shapes.remove_queue(name)

    # -- faults ------------------------------------------------------------------------------------------
    def cut(self, connection: Connection | None = None, error: Exception | None = None) -> None:
        """The line to a client dies, or all of them: what is under way is lost, what it held goes back."""
        for known in [connection] if connection is not None else list(self._peers):
            peer = self._peers.get(known) if isinstance(known, MemoryConnection) else None
            if peer is None:
                raise UsageError(
                    "expected an open connection of this memory broker; this one is not, or over"
                )
            peer.cut(error or ConnectionResetError("the memory broker cut the line"))

    def close(self, connection: MemoryConnection, reason: str = "an operator closed it") -> None:
        """The broker ends a connection in words: 320 CONNECTION_FORCED."""
        self._peers[connection].force(reason)

    def refuse_publishes(self, queue: str, *, refuse: bool = True) -> None:
        """Every publish into this queue is nacked, as by one that is full or has no majority."""
        self._existing(queue).refusing = refuse

    def block(self, reason: str = "low on memory") -> None:
        """Who publishes from now on is told, and no longer read, until `unblock`."""
        self.blocked_reason = reason

    def unblock(self) -> None:
        self.blocked_reason = None
        for peer in list(self._peers.values()):
            peer.unblock()

    async def stop(self) -> None:
        """Shut down: connections are closed in words, and nobody can connect until `start`."""
        self.down = True
        for peer in list(self._peers.values()):
            peer.force("broker forced connection closure with reason 'shutdown'")
        await settle()
        self.shapes.restart()

    def start(self) -> None:
        self.down = False

    async def restart(self) -> None:
        """Durable queues and what is persistent in them are there again; all else is gone."""
        await self.stop()
        self.start()

    # -- policies ----------------------------------------------------------------------------------------
    def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Value],
        *,
        priority: int = 0,
        apply_to: str = "all",
    ) -> None:
        """As `rabbitmqctl set_policy`: the highest priority that matches a name is the one that counts."""
        self.shapes.set_policy(
            BrokerPolicy(
                name=name, pattern=pattern, definition=definition, priority=priority, apply_to=apply_to
            )
        )

    def remove_policy(self, name: str) -> None:
        self.shapes.remove_policy(name)

    # -- layouts -----------------------------------------------------------------------------------------
    def topology(self) -> Topology:
        """The queues that are there, as a layout asks for them; nobody's policies but ours are played."""
        queues = [
            Queue(
                name=queue.name,
                type=queue.kind,
                arguments={k: v for k, v in queue.arguments.items() if k != X_QUEUE_TYPE},
            )
            for queue in self.shapes.queues.values()
        ]
        return topology(vhost=self.address.vhost, version=self.traits.version, queues=queues)

    async def lay(self, link: Link, plan: Topology) -> None:
        """Declare everything of a plan, as `broker.declare` does with a management API; what is there stays
        as it is."""
        for policy in plan.policies:
            self.shapes.set_policy(policy)
        async with await link.channel("declare") as channel:
            for exchange in planned_exchanges(plan):
                await channel.declare_exchange(exchange.name, exchange.type, durable=exchange.durable)
            for queue in plan.queues.values():
                if queue.name not in self.queues:
                    arguments = declared_arguments(queue)
                    await channel.declare_queue(queue.name, durable=queue.durable, arguments=arguments)
            for binding in plan.bindings:
                if binding.source:
                    await channel.bind_queue(binding.destination, binding.source, binding.routing_key)

    # -- looking -----------------------------------------------------------------------------------------
    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self.shapes.queues)

    @property
    def exchanges(self) -> tuple[str, ...]:
        return tuple(self.shapes.exchanges)

    def depth(self, queue: str) -> int:
        """How many messages are ready."""
        found = self._existing(queue)
        found.run()
        return found.depth

    def unacked(self, queue: str) -> int:
        """How many are with consumers."""
        return self._existing(queue).unacked

    def held(self, queue: str) -> int:
        """How many wait for a delayed retry, or for a dead-letter target that takes them."""
        found = self._existing(queue)
        return found.delayed + self._carriage.held(found)

    def messages(self, queue: str) -> list[RawMessage]:
        """The ready messages as they were published, the head first; looking changes nothing."""
        found = self._existing(queue)
        found.run()
        return [RawMessage(item.properties, item.body) for item in found.items()]

    def _existing(self, queue: str) -> MemoryQueue:
        found = self.shapes.queues.get(queue)
        if found is None:
            raise QueueMissing(queue, self.address.vhost)
        return found

    # -- for the channels --------------------------------------------------------------------------------
    def route(self, item: QueuedCopy) -> list[MemoryQueue] | None:
        """The queues this message comes to; None when its exchange is not there."""
        if item.exchange not in self.shapes.exchanges:
            return None
        names = route(
            self.shapes.exchanges,
            self.shapes.queues,
            exchange=item.exchange,
            keys=item.keys + item.blind_keys,
            headers=lambda: field_table.decode(message.header_table(item.properties)),
            exact=not self.traits.believes_clients,
        )
        return [self.shapes.queues[name] for name in names]

    def bury(self, queue: MemoryQueue, item: QueuedCopy, reason: str) -> None:
        self._carriage.bury(queue, item, reason)

    def carry(self) -> None:
        self._carriage.go()

    def expire(self, queue: MemoryQueue) -> None:
        self.shapes.remove_queue(queue.name)


def _played(version: str) -> str:
    """`3.10`, `4.0.5`, `4.3.6` and the like, in full; raises UsageError where nobody measured it."""
    major, minor, patch = number = version_of(version)
    told = f"{major}.{minor}.{patch}"
    if version not in (told, f"{major}.{minor}") or not OLDEST <= number < (5, 0):
        raise UsageError(f"expected a RabbitMQ version from 3.10 to 4.x, such as 4.3.6, got {version!r}")
    return told
