"""Which delivery limit holds for a queue: asked of the management API, else what the version does by default.

AMQP tells neither a queue's type nor its limit. Whoever is about to take letters asks here first. The answer
may be that nobody knows: the API is not there, this user may not ask it, or somebody else's broker answers at
its usual address. Then a queue of RabbitMQ 4 is taken for one with the default limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.amqp.connection import Connection
from deadletter.broker.management import Management, management
from deadletter.broker.session import Link
from deadletter.core.layouts.naming import exactly, lifting_policy_name
from deadletter.core.layouts.service import Limit, lifting, limit_of
from deadletter.core.topology import definitions, look_cost
from deadletter.core.topology.look_cost import Deliveries
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Topology, topology
from deadletter.errors import ManagementRefused

ANSWER_S: Final = 5.0
"""How long the API is waited for where it is not needed: a firewall may swallow the question."""
NEED: Final = "the delivery limit of a queue is told there: give its address (DLQ_API, --api)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLimit:
    """What the management API tells of one queue."""

    deliveries: Deliveries
    limit: Limit | None = None
    """The limit, with the policy that would take it off for good."""
    lifting: BrokerPolicy | None = None
    """The policy that would take it off for a while; None where none would."""
    left_over: bool = False
    """Such a policy is there: a command set it, and runs, or was killed."""


async def ask(link: Link, api: str | None, queue: str) -> KnownLimit:
    """Ask the management API. Raises ManagementRefused when it does not say."""

    connection = await link.connection("consume")
    async with management(link.address, api, need=NEED, timeout_s=ANSWER_S) as asked:
        return await known(asked, connection, queue)


async def known(asked: Management, connection: Connection, queue: str) -> KnownLimit:
    """The same in a conversation that is kept."""
    from deadletter.broker.live_topology import policies_of  # slow to import, as above

    overview = await asked.get("overview", in_vhost=False)
    name = connection.server_properties.get("cluster_name")
    if isinstance(name, str) and overview.get("cluster_name") not in (None, name):
        raise ManagementRefused(
            f"the management API tells of cluster {overview.get('cluster_name')!r}, and we talk to {name!r}; "
            f"{NEED}"
        )
    item = await asked.one("queues", queue)
    if item is None:
        raise ManagementRefused(f"the management API knows no queue {queue!r}; {NEED}")
    policies = await policies_of(asked)
    there = topology(
        vhost=connection.address.vhost,
        version=connection.server_version,
        queues=[definitions.queue_of(item)],
        policies=policies.all if policies.complete else [*policies.all, *_seen_through(item)],
    )
    return _known(there, queue)


def _seen_through(item: definitions.Item) -> list[BrokerPolicy]:
    """Operator policies are for administrators; what they do to a queue is told to everybody."""
    definition = item.get("effective_policy_definition")
    limit = definition.get("delivery-limit") if isinstance(definition, dict) else None
    if limit is None:
        return []
    pattern = exactly(str(item["name"]))
    return [BrokerPolicy(name="", pattern=pattern, definition={"delivery-limit": limit}, operator=True)]


def _known(everything: Topology, name: str) -> KnownLimit:
    # A limit that is lifted for a while comes back: what holds without that counts.
    ours = lifting_policy_name(name)
    there = topology(
        vhost=everything.vhost,
        version=everything.version,
        queues=everything.queues.values(),
        policies=[policy for policy in everything.policies if policy.name != ours],
    )
    queue = there.queues[name]
    limit = limit_of(there, queue)
    left_over = len(there.policies) != len(everything.policies)
    return KnownLimit(
        deliveries=look_cost.deliveries_there(queue, there.version),
        limit=limit,
        lifting=None if limit is None else lifting(limit, there, queue),
        left_over=left_over,
    )
