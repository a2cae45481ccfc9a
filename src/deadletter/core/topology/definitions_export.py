"""A topology as RabbitMQ's own definitions: for `rabbitmqctl import_definitions` and the management page.

Only what a vhost needs to work is in it: exchanges, queues, bindings, policies. No users and no permissions:
those are not ours to hand out. Importing adds what is missing and never changes a queue that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.vhost import Binding, Exchange, Queue, Topology


def definitions(topology: Topology) -> dict[str, Any]:
    """As a value that `json.dumps` takes."""
    vhost = topology.vhost
    policies = [
        {"vhost": vhost, "name": policy.name, **_policy(policy)}
        for policy in topology.policies
        if not policy.operator
    ]
    # Operator policies are runtime parameters to RabbitMQ; only there does an import take them.
    parameters = [
        {"vhost": vhost, "component": "operator_policy", "name": policy.name, "value": _policy(policy)}
        for policy in topology.policies
        if policy.operator
    ]
    return {
        "vhosts": [{"name": vhost}],
        "parameters": parameters,
        "policies": policies,
        "exchanges": [_exchange(vhost, exchange) for exchange in planned_exchanges(topology)],
        "queues": [_queue(vhost, queue) for queue in topology.queues.values() if not queue.exclusive],
        "bindings": [_binding(vhost, binding) for binding in topology.bindings if binding.source],
    }


def _policy(policy: BrokerPolicy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def _exchange(vhost: str, exchange: Exchange) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": dict(exchange.arguments),
    }


def _queue(vhost: str, queue: Queue) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "name": queue.name,
        "type": queue.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": declared_arguments(queue),
    }


def _binding(vhost: str, binding: Binding) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": binding.to.value,
        "routing_key": binding.routing_key,
        "arguments": dict(binding.arguments),
    }


def declared_arguments(queue: Queue) -> dict[str, Value]:
    """The arguments with which the queue is declared: its type is one of them."""
    rest: Mapping[str, Value] = queue.arguments
    return {X_QUEUE_TYPE: queue.type, **rest}
