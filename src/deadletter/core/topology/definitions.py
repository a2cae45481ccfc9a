"""RabbitMQ's own description of exchanges, queues, bindings and policies, read into topologies.

The same dictionaries stand in an exported definitions file and in the answers of the management API, which
adds what is alive (`broker.live_topology`). A file of one vhost leaves the vhost out of its items; an older
one may leave out types. What is not as it should be is refused with the place where it stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.vhost import (
    Binding,
    DestinationKind,
    Exchange,
    Permission,
    Queue,
    Topology,
    topology,
)
from deadletter.errors import UsageError

_T = TypeVar("_T")
Item = Mapping[str, Any]
_KINDS = {kind.value: kind for kind in DestinationKind}


def read_definitions(document: object, source: str, *, version: str | None = None) -> dict[str, Topology]:
    """Every vhost of a definitions document; `source` says where it came from."""
    if not isinstance(document, dict) or not any(
        key in document for key in ("queues", "exchanges", "vhosts")
    ):
        raise UsageError(
            f"{source}: expected RabbitMQ definitions (an object with queues, exchanges, bindings), got "
            f"{_kind(document)}; export them with: rabbitmqctl export_definitions {source}"
        )
    only = document.get("vhost", {}).get("name") if isinstance(document.get("vhost"), dict) else None
    default = str(only or document.get("rabbit_vhost") or "/")
    parts = _Parts(document, source, default)
    queues = parts.by_vhost("queues", queue_of)
    exchanges = parts.by_vhost("exchanges", exchange_of)
    bindings = parts.by_vhost("bindings", binding_of)
    policies = parts.by_vhost("policies", policy_of)
    for vhost, more in parts.by_vhost("parameters", operator_policy_of).items():
        policies[vhost] += [policy for policy in more if policy is not None]
    permissions = parts.by_vhost("permissions", permission_of) if "permissions" in document else None
    vhosts = {str(item["name"]) for item in parts.items("vhosts") if "name" in item}
    vhosts |= {*queues, *exchanges, *bindings} or {default}
    told = version or str(document.get("rabbitmq_version") or document.get("rabbit_version") or "")
    return {
        vhost: topology(
            vhost=vhost,
            version=told,
            exchanges=exchanges[vhost],
            queues=queues[vhost],
            bindings=[binding for binding in bindings[vhost] if binding.source],
            policies=policies[vhost],
            permissions=None if permissions is None else permissions[vhost],
        )
        for vhost in sorted(vhosts)
    }


class _Parts:
    def __init__(self, document: Item, source: str, default_vhost: str) -> None:
        self._document = document
        self._source = source
        self._default_vhost = default_vhost

    def items(self, key: str) -> Iterable[Item]:
        found = self._document.get(key, [])
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise UsageError(f"{self._source}: {key}: expected a list of objects, got {_kind(found)}")
        return found

    def by_vhost(self, key: str, make: Callable[[Item], _T]) -> dict[str, list[_T]]:
        made: dict[str, list[_T]] = defaultdict(list)
        for number, item in enumerate(self.items(key)):
            try:
                made[str(item.get("vhost", self._default_vhost))].append(make(item))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UsageError(
                    f"{self._source}: {key}[{number}]: expected an item as RabbitMQ exports it, got one "
                    f"without sense ({type(error).__name__}: {error})"
                ) from error
        return made


def queue_of(item: Item) -> Queue:
    arguments = dict(item.get("arguments") or {})
    kind = str(arguments.pop(X_QUEUE_TYPE, None) or item.get("type") or "classic")
    return Queue(
        name=str(item["name"]),
        type=kind,
        durable=bool(item.get("durable", True)),
        auto_delete=bool(item.get("auto_delete", False)),
        exclusive=bool(item.get("exclusive", False)),
        arguments=arguments,
    )


def exchange_of(item: Item) -> Exchange:
    return Exchange(
        name=str(item["name"]),
        type=str(item.get("type", "direct")),
        durable=bool(item.get("durable", True)),
        auto_delete=bool(item.get("auto_delete", False)),
        internal=bool(item.get("internal", False)),
        arguments=dict(item.get("arguments") or {}),
    )


def binding_of(item: Item) -> Binding:
    return Binding(
        source=str(item["source"]),
        destination=str(item["destination"]),
        to=_KINDS[str(item.get("destination_type", "queue"))],
        routing_key=str(item.get("routing_key", "")),
        arguments=dict(item.get("arguments") or {}),
    )


def policy_of(item: Item, *, operator: bool = False) -> BrokerPolicy:
    return BrokerPolicy(
        name=str(item["name"]),
        pattern=str(item["pattern"]),
        definition=dict(item["definition"]),
        apply_to=str(item.get("apply-to", "all")),
        priority=int(item.get("priority", 0)),
        operator=operator,
    )


def operator_policy_of(item: Item) -> BrokerPolicy | None:
    """In a file operator policies stand among the parameters, their content one level down."""
    if item.get("component") != "operator_policy":
        return None
    return policy_of({"name": item["name"], **item["value"]}, operator=True)


def permission_of(item: Item) -> Permission:
    return Permission(
        user=str(item["user"]),
        configure=str(item.get("configure", "")),
        write=str(item.get("write", "")),
        read=str(item.get("read", "")),
    )


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {', '.join(sorted(map(str, value))[:5]) or 'nothing in it'}"
    return "a list" if isinstance(value, Sequence) and not isinstance(value, str) else type(value).__name__
