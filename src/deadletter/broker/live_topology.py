"""The shape of a live vhost, with what is alive in it, from the management API."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.broker.management import Management, management
from deadletter.core.topology import definitions
from deadletter.core.topology.definitions import Item
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import LiveConsumer, Permission, Queue, QueueState, Topology, topology
from deadletter.errors import ManagementRefused

if TYPE_CHECKING:
    from deadletter.core.topology.safekeeping import Told

NEED: Final = (
    "the shape of a vhost is told there only: give its address (DLQ_API, --api), or a definitions file"
)


async def read_topology(address: Address, api: str | None) -> Topology:
    """Everything the user of this address may know of the vhost. Raises ManagementRefused."""
    async with management(address, api, need=NEED) as asked:
        return await topology_of(asked, address)


async def topology_of(asked: Management, address: Address) -> Topology:
    """The same in a conversation that is kept."""
    with _understood(address):
        consumers = await _consumers(asked)
        items = (await asked.every("queues", COLUMNS)).items
        queues = [_queue(item, tuple(consumers[str(item["name"])])) for item in items]
        # Permissions are for administrators; without them rules say less.
        permissions = await _permissions(asked)
        shape = await _shape(asked, queues, (await policies_of(asked)).all)
        return replace(shape, permissions=None if permissions is None else tuple(permissions))


async def shape_of(
    asked: Management, address: Address, items: Iterable[Item], policies: Iterable[BrokerPolicy]
) -> Topology:
    """Of queues and policies that were told already, with what leads to them; not who may do what, and who
    consumes."""
    with _understood(address):
        return await _shape(asked, [_queue(item) for item in items], policies)


@contextmanager
def _understood(address: Address) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ManagementRefused(
            f"the management API of {address} tells something we do not understand "
            f"({type(error).__name__}: {error}); {NEED}"
        ) from error


async def _shape(asked: Management, queues: Iterable[Queue], policies: Iterable[BrokerPolicy]) -> Topology:
    overview, exchanges, bindings = await asyncio.gather(
        asked.get("overview", in_vhost=False, columns="rabbitmq_version"),
        asked.get("exchanges"),
        asked.get("bindings", columns="source,destination,destination_type,routing_key,arguments"),
    )
    return topology(
        vhost=asked.vhost,
        version=str(overview["rabbitmq_version"]),
        exchanges=[definitions.exchange_of(item) for item in exchanges],
        queues=queues,
        bindings=[definitions.binding_of(item) for item in bindings if item.get("source") != ""],
        policies=policies,
        live=True,
    )


def _queue(item: Item, consumers: tuple[LiveConsumer, ...] = ()) -> Queue:
    return replace(
        definitions.queue_of(item),
        exclusive=bool(item.get("exclusive")) or bool(item.get("owner_pid_details")),
        state=queue_state(item, consumers),
    )


class LivePolicies(NamedTuple):
    """What the vhost's policies are now."""

    all: list[BrokerPolicy]
    complete: bool
    """Operator policies are told to administrators only; whether we are one."""


async def policies_of(asked: Management) -> LivePolicies:
    """Read anew, in two short answers: they hold from the moment they are set."""
    operators = await asked.get_if_allowed("operator-policies")
    return LivePolicies(
        [
            *(definitions.policy_of(item) for item in await asked.get("policies")),
            *(definitions.policy_of(item, operator=True) for item in operators or ()),
        ],
        operators is not None,
    )


COLUMNS: Final = (
    "name,type,durable,auto_delete,exclusive,owner_pid_details,arguments,messages,messages_ready,"
    "messages_unacknowledged,consumers,messages_details.rate,head_message_timestamp,message_stats.publish_details.rate,"
    "message_stats.deliver_get_details.rate,policy,operator_policy,effective_policy_definition"
)


BRIEF_COLUMNS: Final = "name,durable,auto_delete,exclusive,arguments"
"""What a broker tells of queues without looking up a figure of any."""


def told_of(item: Item) -> Told | None:
    """Which policies a queue says it has; None before the broker's first figures of it."""
    from deadletter.core.topology.safekeeping import Told  # whoever only looks keeps nothing safe

    if "effective_policy_definition" not in item:
        return None
    return Told(
        policy=str(item.get("policy") or "") or None,
        operator_policy=str(item.get("operator_policy") or "") or None,
        definition=_table(item["effective_policy_definition"]),
    )


async def _consumers(asked: Management) -> dict[str, list[LiveConsumer]]:
    found: dict[str, list[LiveConsumer]] = defaultdict(list)
    clients = {
        str(item.get("name")): str(item.get("user_provided_name") or "")
        for item in await asked.get_if_allowed("vhosts", below="connections") or ()
    }
    for item in await asked.get("consumers"):
        channel = _table(item.get("channel_details"))
        address = str(channel.get("connection_name", ""))
        found[str(_table(item.get("queue")).get("name"))].append(
            LiveConsumer(
                tag=str(item.get("consumer_tag", "")),
                prefetch=int(item.get("prefetch_count") or 0),
                ack_required=bool(item.get("ack_required", True)),
                connection=clients.get(address) or address,
                user=str(channel.get("user", "")),
            )
        )
    return found


async def _permissions(asked: Management) -> list[Permission] | None:
    told = await asked.get_if_allowed("vhosts", below="permissions")
    return None if told is None else [definitions.permission_of(item) for item in told]


def queue_state(item: Item, consumers: tuple[LiveConsumer, ...] = ()) -> QueueState:
    """A queue of the list; who consumes it is told elsewhere, and here only how many do."""
    stats = _table(item.get("message_stats"))
    stamp = item.get("head_message_timestamp")
    return QueueState(
        ready=int(item.get("messages_ready") or 0),
        unacked=int(item.get("messages_unacknowledged") or 0),
        messages=int(item.get("messages") or 0),
        consumers=consumers,
        consumer_count=int(item.get("consumers") or 0),
        growth_per_s=_rate(item.get("messages_details")),
        oldest_at_ms=_stamp_ms(stamp),
        published_per_s=_rate(stats.get("publish_details")),
        delivered_per_s=_rate(stats.get("deliver_get_details")),
    )


def _rate(details: object) -> float:
    return float(_table(details).get("rate") or 0.0)


def _stamp_ms(value: object) -> int | None:
    """Some versions tell seconds, some a text; what is neither is not known."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000
    if isinstance(value, str) and value:
        try:
            return int(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            return None
    return None


def _table(value: object) -> Mapping[str, Any]:
    # An empty object comes as an empty list where RabbitMQ lost its type.
    return value if isinstance(value, dict) else {}
