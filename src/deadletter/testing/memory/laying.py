"""A layout on a memory broker: what `broker.declare` does with the management API's help, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deadletter.broker.session import Link
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.vhost import Queue, Topology, topology

if TYPE_CHECKING:
    from deadletter.testing.memory.broker import MemoryBroker


def shape_of(broker: MemoryBroker) -> Topology:
    """The queues that are there, as a layout asks for them; nobody's policies but ours are played."""
    return topology(
        vhost=broker.address.vhost,
        version=broker.traits.version,
        queues=[
            Queue(
                name=queue.name,
                type=queue.kind,
                arguments={k: v for k, v in queue.arguments.items() if k != X_QUEUE_TYPE},
            )
            for queue in broker.shapes.queues.values()
        ],
    )


async def lay(broker: MemoryBroker, link: Link, plan: Topology) -> None:
    """Declare everything of a plan; what is there stays as it is."""
    for policy in plan.policies:
        broker.set_policy(
            policy.name, policy.pattern, policy.definition, priority=policy.priority, apply_to=policy.apply_to
        )
    channel = await link.channel()
    for exchange in planned_exchanges(plan):
        await channel.declare_exchange(exchange.name, exchange.type, durable=exchange.durable)
    for queue in plan.queues.values():
        if queue.name not in broker.queues:
            await channel.declare_queue(
                queue.name, durable=queue.durable, arguments=declared_arguments(queue)
            )
    for binding in plan.bindings:
        if binding.source:
            await channel.bind_queue(binding.destination, binding.source, binding.routing_key)
    await channel.close()
