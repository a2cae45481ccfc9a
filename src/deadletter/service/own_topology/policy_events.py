"""RabbitMQ's own bulletin: where its event exchange is enabled, a policy that changes is known at once.

The plugin `rabbitmq_event_exchange` publishes to `amq.rabbitmq.event`, in the default vhost unless it is told
another, and for all vhosts. Whoever looks after that vhost listens there, by an exclusive queue that is gone
with its connection. Without the plugin, or without the right to bind, the next look around sees it.

Measured on 3.10.8, 4.0.5 and 4.3.6: setting any policy says `policy.set`, clearing says `policy.cleared` or
`operator.policy.cleared`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from deadletter.amqp.channel import Delivery
from deadletter.broker.session import Link
from deadletter.core.letter.names import PREFIX
from deadletter.core.topology.vhost import Topology
from deadletter.errors import ChannelClosed

EVENTS: Final = "amq.rabbitmq.event"
_KEYS: Final = ("policy.*", "operator.policy.*")
_QUEUE: Final = f"{PREFIX}bulletin."


async def listen(link: Link, shape: Topology, on_change: Callable[[], None]) -> bool:
    """Whether changes of policies are told on this link from now on."""
    if EVENTS not in shape.exchanges:
        return False
    channel = await link.channel("consume")
    queue = f"{_QUEUE}{secrets.token_hex(8)}"

    def on_delivery(delivery: Delivery) -> None:
        channel.ack(delivery.tag)
        on_change()

    with suppress(ChannelClosed):
        await channel.declare_queue(queue, durable=False, exclusive=True)
        for key in _KEYS:
            await channel.bind_queue(queue, EVENTS, key)
        await channel.consume(queue, on_delivery, lambda: None)
        return True
    return False
