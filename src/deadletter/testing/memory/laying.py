"""A layout on a memory broker: what `broker.declare` does with the management API's help, without one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from deadletter.amqp.connection import Connection
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.vhost import Queue, Topology, topology
from deadletter.testing.memory.contents.queues import MemoryQueue


def topology_of(version: str, vhost: str, queues: Iterable[MemoryQueue]) -> Topology:
    return topology(
        vhost=vhost,
        version=version,
        queues=[
            Queue(
                name=queue.name,
                type=queue.kind,
                arguments={k: v for k, v in queue.arguments.items() if k != X_QUEUE_TYPE},
            )
            for queue in queues
        ],
    )


async def lay(connection: Connection, plan: Topology, *, there: Collection[str]) -> None:
    """Declare the exchanges, queues and bindings of a plan but for the queues that are there."""
    channel = await connection.channel()
    for exchange in planned_exchanges(plan):
        await channel.declare_exchange(exchange.name, exchange.type, durable=exchange.durable)
    for queue in plan.queues.values():
        if queue.name not in there:
            await channel.declare_queue(
                queue.name, durable=queue.durable, arguments=declared_arguments(queue)
            )
    for binding in plan.bindings:
        if binding.source:
            await channel.bind_queue(binding.destination, binding.source, binding.routing_key)
    await channel.close()
